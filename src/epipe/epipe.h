// epipe trains a neural network that is cut into stages, across devices and machines, and compresses what crosses the cuts.
//
// This is all of the library. Two ways in:
//
//   // 1. The whole program with your model in it: train, serve, launch, report, recovery.
//   int main(int argc, char** argv) {
//     epipe::Registry models = epipe::builtin_models();
//     models.add("mynet", [](const epipe::DataSpec& data) { return epipe::layers(make_net(data.classes)); });
//     return epipe::main(argc, argv, models);
//   }
//
//   // 2. Your own training loop: a Sequential, cut.
//   epipe::Pipeline pipeline(epipe::layers(net), {.cuts = {2, 5}, .place = {0, 1, 0}, .chunks = 4, .codec = "dct:1"});
//   auto step = pipeline.train_step(images, labels);  // gradients are in net's own parameters
//   optimizer.step();
//
// Also: a codec by itself, epipe::Codec, and a stage on a server, epipe::RemoteStage. Invalid arguments throw std::invalid_argument, later
// failures std::runtime_error or c10::Error.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace epipe {

namespace model {
struct Architecture;
}
namespace train {
struct Registry;
}

// What a model must know about the data.
struct DataSpec {
  enum class Kind : std::uint8_t { kImages, kText };
  Kind kind = Kind::kImages;
  std::vector<std::int64_t> shape{};                // of one sample: [C, H, W], [features], or [T] token ids
  std::int64_t classes = 2;                         // outputs of the model; regression: values per sample
  std::int64_t vocabulary = 0;                      // text: token ids are below this
  bool regression = false;                          // targets are float32 [B, classes]; otherwise int64 [B]
  std::vector<std::string> metrics = {"accuracy"};  // for the validation set, the main one first
  bool next_token = false;                          // targets are int64 [B, T]: the tokens themselves, -100 where nothing is predicted
};

// A model as a list of layers; it can be cut between them.
class Layers {
 public:
  explicit Layers(std::shared_ptr<const model::Architecture> architecture) : architecture_(std::move(architecture)) {}
  std::vector<std::string> names() const;  // "0", "1", ...: as used by cuts and weights files
  std::size_t size() const;
  const model::Architecture& architecture() const { return *architecture_; }

 private:
  std::shared_ptr<const model::Architecture> architecture_;  // shared by copies, which never change it
};

// A Sequential that may be a child of another one, unlike LibTorch's own: epipe handles its children as well.
class NestedImpl final : public torch::nn::SequentialImpl {
 public:
  using SequentialImpl::SequentialImpl;
  torch::Tensor forward(const torch::Tensor& x) { return SequentialImpl::forward(x); }
};
TORCH_MODULE(Nested);

// Every child of the Sequential becomes a layer; a Nested child is one layer. The layers share its parameters and buffers, under the
// Sequential's names ("0.weight"). BatchNorm becomes one that updates its running statistics once per batch, whatever the micro-batches;
// Dropout becomes one that draws by (seed, epoch, step, sample, layer), so that cuts, resumes and replays draw the same. Either of them
// inside a module with its own forward is refused. Modules take a tensor and return one.
Layers layers(const torch::nn::Sequential& net);

// Samples that are trained on together. The first dim of every tensor counts the samples.
struct Batch {
  std::vector<torch::Tensor> inputs{};  // for the first layer
  torch::Tensor targets{};              // for the loss
  std::vector<torch::Tensor> side{};    // side inputs for every layer that takes them, such as an attention mask
  std::vector<std::int64_t> samples{};  // their ids, on which dropout depends; if empty, a Pipeline numbers them
};

// Samples by id, for `epipe train --data NAME`. Several threads call batch() at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual DataSpec spec() const = 0;
  virtual std::int64_t size() const = 0;
  // The samples with these ids, in this order. Anything random must depend only on the arguments.
  virtual Batch batch(std::span<const std::int64_t> ids, std::uint64_t seed, std::uint64_t epoch, std::uint64_t step) const = 0;
};

struct Datasets {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;
};

// A loss's result for one micro-batch.
struct LossResult {
  torch::Tensor sum;            // over the samples, not their mean; scalar, with its graph
  torch::Tensor correct{};      // correctly predicted samples, or whatever the metric sums; scalar; undefined: 0
  torch::Tensor predictions{};  // undefined: the output itself
};
using Loss = std::function<LossResult(const torch::Tensor& output, const torch::Tensor& targets)>;

// The models, data and losses a program knows by name. A server builds only models in its own program's registry.
class Registry {
 public:
  using ModelFactory = std::function<Layers(const DataSpec& data)>;
  using DatasetFactory = std::function<Datasets(const std::string& argument)>;

  Registry();  // knows no models
  ~Registry();
  Registry(const Registry& other);
  Registry(Registry&& other) noexcept;
  Registry& operator=(const Registry& other);
  Registry& operator=(Registry&& other) noexcept;

  // For --model NAME. The factory is called in each process that holds some of its layers; PyTorch's generator is seeded from --seed, so
  // initial values drawn from it are the same in every run.
  void add(const std::string& name, ModelFactory factory, DataSpec::Kind input = DataSpec::Kind::kImages);
  // For --data NAME, or NAME:ARGUMENT.
  void add_dataset(const std::string& name, DatasetFactory factory);
  // For --loss NAME.
  void add_loss(const std::string& name, Loss loss);

  std::vector<std::string> models() const;
  const train::Registry& known() const { return *known_; }

 private:
  explicit Registry(std::unique_ptr<train::Registry> known);
  friend Registry builtin_models();

  std::unique_ptr<train::Registry> known_;
};

// cnn, mobilenet_v2, resnet18, roberta:DIR, ...: the models of `epipe` itself.
Registry builtin_models();

// Runs the program `epipe` with these models and returns the exit code for main() to return. Call it first and do nothing after it: it may
// end the process itself. `serve` and `launch` start this program again, so main() must call it with unchanged arguments.
int main(int argc, char** argv, const Registry& models);

// How a Pipeline cuts a model, places its stages and compresses.
struct PipelineOptions {
  std::vector<std::size_t> cuts{};       // the layer at which each stage but the first begins, ascending; none: one stage
  std::vector<int> place{};              // the worker of each stage, "0,1,0"; empty: stage j on worker j
  int chunks = 1;                        // micro-batches per batch
  std::string codec = "none";            // for every cut, both directions; "auto" is auto:2: only `epipe train` can choose a rate
  std::string codec_forward{};           // for activations, if different from `codec`
  std::string codec_backward{};          // for gradients, if different from `codec`
  std::string schedule = "gpipe";        // or 1f1b, zb-h1; `epipe schedule` draws them
  int threads = 1;                       // of each worker, inside an operator
  std::vector<torch::Device> devices{};  // one per worker; the layers move there; empty: the CPU
  bool recompute = false;                // keep only the inputs of a stage between forward and backward
  std::string precision = "fp32";        // for products and convolutions; or bf16, fp16
  std::uint64_t seed = 0;                // for dropout
  Loss loss{};                           // empty: cross entropy over classes
};

// What crossed one cut in one direction.
struct Traffic {
  std::uint64_t wire_bytes = 0;  // headers included
  std::uint64_t values = 0;
  double bits_per_value() const { return values == 0 ? 0 : 8.0 * static_cast<double>(wire_bytes) / static_cast<double>(values); }
};

struct StepResult {
  double loss = 0;  // the mean over the samples, for any chunks
  double correct = 0;
  std::int64_t samples = 0;
  std::vector<Traffic> forward{};   // by cut
  std::vector<Traffic> backward{};  // by cut
  torch::Tensor predictions{};      // evaluate() only: the loss's predictions for all samples
};

// Trains layers cut into stages, one thread per worker. With the codec "none" the result equals the same micro-batches through the whole
// net, bit for bit. Not for several threads at once; after an exception a pipeline cannot be used any more.
class Pipeline {
 public:
  explicit Pipeline(const Layers& layers, PipelineOptions options = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  // Forward and backward of one batch. The gradients of the mean loss replace the parameters' old gradients; BatchNorm's running statistics
  // are updated once. Stepping an optimizer is up to you. Sample ids are numbered across steps: 0 to N - 1 in the first step, from N on in
  // the second.
  StepResult train_step(const torch::Tensor& inputs, const torch::Tensor& targets);
  StepResult train_step(const Batch& batch);
  // Forward only, in evaluation mode; nothing changes.
  StepResult evaluate(const torch::Tensor& inputs, const torch::Tensor& targets);
  StepResult evaluate(const Batch& batch);

  // The state of dropout and codecs: together with the weights and the optimizer, all that a training loop must save to continue as if it
  // had never stopped.
  struct State {
    std::uint64_t steps = 0;
    std::map<std::string, torch::Tensor> encoders{};
  };
  State state() const;
  void set_state(const State& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A stage of a model on a server (`epipe serve`), for your own loop, which computes the parts before and after it.
struct RemoteStageOptions {
  std::string connect{};        // HOST:PORT
  std::string model{};          // by name, or torchscript:FILE, which the server finds by its hash
  std::size_t first_layer = 0;  // the stage is layers [first_layer, end_layer) of the model
  std::size_t end_layer = 0;    // 0: to its end
  std::string weights{};        // initial weights of the whole model; empty: from hf:DIR or the TorchScript file, or by the seed
  DataSpec data{};              // for models that adapt to it
  std::string lora{};  // "r=8,alpha=16,targets=q_proj+v_proj": only thin matrices beside linear layers are trained; empty: all weights
  std::string codec_forward = "none";  // "auto" is auto:2
  std::string codec_backward = "none";
  std::string optimizer = "sgd";  // or adam, adamw: as in torch.optim
  double lr = 0.05;               // unless passed to step()
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  int chunks = 64;  // maximum number of micro-batches between forward and backward
  int threads = 1;  // of the server, inside an operator
  std::uint64_t seed = 0;
  std::string tls{};                   // folder with ca.pem and token
  std::string token{};                 // replaces the folder's token
  bool insecure = false;               // plaintext, only within this machine
  std::string run_dir{};               // keeps what is needed to continue; empty: it cannot continue
  double timeout = 120;                // seconds without a sign of the server, and of trying to reconnect
  std::function<void()> poll = [] {};  // called periodically by calls that wait; may throw
  std::function<void(const std::string&)> note = [](const std::string&) {};  // gets notes for the user
};

// The server is not reachable any more; a later call tries again.
class ServerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// The server refused something, or failed; what() has its reason. The step under way is dropped.
class ServerFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// The server lost its memory, and the stage is back at its newest checkpoint: load the state from saved(), and go on after steps_done().
class RolledBack : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Micro-batches are sent immediately: forward() and backward() send and return, output() and gradient() wait. step() commits the
// sum of their gradients. A lost connection is reopened, and the step's messages are sent again, so that the result is the same. Throws
// std::logic_error for a wrong order of calls. Not for several threads at once.
class RemoteStage {
 public:
  // Connects. If run_dir holds a run, continues it from its newest checkpoint.
  explicit RemoteStage(RemoteStageOptions options);
  ~RemoteStage();
  RemoteStage(RemoteStage&&) noexcept;
  RemoteStage& operator=(RemoteStage&&) noexcept;

  // Returns the number of the micro-batch. `training`: its backward follows; otherwise evaluation mode.
  std::uint32_t forward(const torch::Tensor& x, bool training = true);
  torch::Tensor output(std::uint32_t micro_batch);
  void backward(std::uint32_t micro_batch, const torch::Tensor& gradient);
  torch::Tensor gradient(std::uint32_t micro_batch);  // of the input
  void step();
  void step(double lr);
  void discard();  // the step under way

  std::uint64_t steps_done() const;
  // Saves a checkpoint here and on the server, with your own bytes. Call between steps; needs run_dir.
  void save(std::span<const std::byte> own = {});
  std::span<const std::byte> saved() const;  // the bytes in the checkpoint it continued from; empty: none
  std::map<std::string, torch::Tensor> weights();
  std::vector<std::string> layers() const;  // the names of the stage's layers
  // The traffic of the cut before and the cut after the stage since the last call.
  struct Crossed {
    std::vector<Traffic> forward{};
    std::vector<Traffic> backward{};
  };
  Crossed take_traffic();
  // end(): the server forgets the run. leave(): it keeps the run for a later one with the same run_dir. Both close the stage.
  void end();
  void leave();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Tensors to frames and back; the same frames cross a cut and are written by `epipe codec encode`.
class Codec {
 public:
  explicit Codec(const std::string& spec, int threads = 1);  // "dct:0.5", "topk:0.1>fp16", ...
  ~Codec();
  Codec(Codec&&) noexcept;
  Codec& operator=(Codec&&) noexcept;

  std::string spec() const;
  // A float32, float16 or bfloat16 tensor of any shape without NaN and Inf. Some codecs keep state from it for the next tensor, unless
  // `frozen`, as in validation.
  std::vector<std::byte> encode(const torch::Tensor& x, bool frozen = false);
  // The same without a copy: the frame is valid until the next call.
  std::span<const std::byte> encode_view(const torch::Tensor& x, bool frozen = false);
  // Also without a copy: the frame is valid as long as its owner is held. Afterwards the codec reuses its memory.
  struct HeldFrame {
    std::shared_ptr<const void> owner;
    std::span<const std::byte> bytes;
  };
  HeldFrame encode_held(const torch::Tensor& x, bool frozen = false);
  std::map<std::string, torch::Tensor> state() const;
  void set_state(const std::map<std::string, torch::Tensor>& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The available codecs: "none", "uniform:B", "topk:R", ...; see docs/codecs.md.
std::vector<std::string> codecs();

// Decodes a frame of any codec. For untrusted frames; `max_bytes` bounds its memory. Decodes into `reuse` if that has the frame's shape,
// type and device, which saves page allocation for large tensors; otherwise into a new tensor on `device`. A CUDA device needs a build with
// CUDA.
torch::Tensor decode(std::span<const std::byte> frame, std::uint64_t max_bytes = std::uint64_t{1} << 32, const torch::Tensor& reuse = {},
                     torch::Device device = torch::kCPU);

}  // namespace epipe
