// epipe forward
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "epipe/cli/command.h"
#include "epipe/data/npy.h"
#include "epipe/model/weights.h"

namespace epipe::cli {
namespace {

struct ForwardFlags {
  std::string model;
  std::string weights;
  std::string input;
  std::string input_ids;
  std::string attention_mask;
  std::string output;
  std::int64_t batch = 32;
  int threads = 0;
};

// What goes into a model, samples first.
struct Inputs {
  data::DataSpec spec;
  torch::Tensor x;
  layer::Tensors side;
};

torch::Tensor read_integers(const std::string& path) {
  const auto x = value_or_fail(data::read_npy_any(path));
  if (x.is_floating_point()) throw Failure(fmt::format("{}: expected integers, got {}", path, c10::toString(x.scalar_type())));
  return x.to(torch::kInt64);
}

Inputs read_token_ids(const ForwardFlags& flags) {
  Inputs in;
  in.x = read_integers(flags.input_ids);
  if (in.x.dim() != 2 || in.x.numel() == 0) throw Failure(fmt::format("{}: expected token ids [B, T]", flags.input_ids));
  if (in.x.min().item<std::int64_t>() < 0) throw Failure(fmt::format("{}: expected token ids from 0 on", flags.input_ids));
  const auto mask = flags.attention_mask.empty() ? torch::ones_like(in.x) : read_integers(flags.attention_mask);
  if (mask.sizes() != in.x.sizes()) throw Failure(fmt::format("{}: expected the shape of the token ids", flags.attention_mask));
  in.side = {mask.to(torch::kFloat32)};
  in.spec.kind = data::DataSpec::Kind::kText;
  in.spec.shape = {in.x.size(1)};
  in.spec.vocabulary = in.x.max().item<std::int64_t>() + 1;
  return in;
}

Inputs read_images(const ForwardFlags& flags) {
  Inputs in;
  in.x = value_or_fail(data::read_npy(flags.input));
  if (in.x.dim() < 2 || in.x.numel() == 0) throw Failure(fmt::format("{}: expected samples, then their shape", flags.input));
  in.spec.shape = in.x.sizes().slice(1).vec();
  return in;
}

// The classes, and where a model takes its sizes from the data the tokens and positions, are those the weights were made for.
data::DataSpec fitted(const model::Registry& models, data::DataSpec spec, const std::string& name, const model::NamedTensors& weights) {
  const auto rows = [&](const std::string& tensor, std::int64_t otherwise) {
    const auto found = weights.find(tensor);
    return found != weights.end() && found->second.dim() > 0 ? found->second.size(0) : otherwise;
  };
  if (name == "transformer") {
    spec.vocabulary = std::max(spec.vocabulary, rows("embeddings.token.weight", 0));
    spec.shape[0] = std::max(spec.shape[0], rows("embeddings.position.weight", 0));
  }
  const auto head = models.architecture(name, spec).layers.back().make();
  const auto parameters = head->named_parameters();
  if (!parameters.is_empty()) spec.classes = rows(head->full_name(parameters.back().key()), spec.classes);
  return spec;
}

model::Model load(const model::Registry& models, const ForwardFlags& flags, const data::DataSpec& spec) {
  auto weights = value_or_fail(model::read_weights(flags.weights));
  auto model = models.build_model(flags.model, fitted(models, spec, flags.model, weights));
  for (const auto& note : value_or_fail(model::load_weights(model, std::move(weights), model::NewParts::kNone))) {
    fmt::print(stderr, "note: {}\n", note);
  }
  return model;
}

torch::Tensor forward_in_batches(const model::Model& model, const Inputs& in, std::int64_t batch) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> outputs;
  for (std::int64_t begin = 0; begin < in.x.size(0); begin += batch) {
    const std::int64_t size = std::min(batch, in.x.size(0) - begin);
    layer::ForwardContext at;
    at.training = false;
    for (std::int64_t i = 0; i < size; ++i) at.samples.push_back(begin + i);
    for (const auto& side : in.side) at.side.push_back(side.narrow(0, begin, size));
    layer::Tensors x = {in.x.narrow(0, begin, size)};
    for (const auto& layer : model.layers) x = layer->forward(x, at);
    if (x.size() != 1)
      throw Failure(fmt::format("expected one tensor from {}, got {}; return the one that is wanted", model.name, x.size()));
    outputs.push_back(x[0]);
  }
  return torch::cat(outputs);
}

void run_forward(const model::Registry& models, const ForwardFlags& flags) {
  if (flags.input.empty() == flags.input_ids.empty()) throw UsageError("give --input for images, or --input-ids for text");
  const bool brings_weights = flags.model.starts_with("torchscript:") && flags.weights.empty();
  if (flags.weights.empty() && !brings_weights) throw UsageError("--weights is required");
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  try {
    if (!flags.input.empty() && models.takes_text(flags.model)) throw UsageError(flags.model + " reads text: give --input-ids");
    const Inputs in = flags.input.empty() ? read_token_ids(flags) : read_images(flags);
    const auto model = brings_weights ? models.build_model(flags.model, in.spec) : load(models, flags, in.spec);
    const auto y = forward_in_batches(model, in, flags.batch).to(torch::kFloat32);
    value_or_fail(data::write_npy(flags.output, y));
    fmt::print("[{}] written to {}\n", fmt::join(y.sizes(), ", "), flags.output);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

void add_forward_command(CLI::App& app, const train::Registry& registry) {
  auto flags = std::make_shared<ForwardFlags>();  // owned by the callback as well
  auto* command = app.add_subcommand("forward", "The outputs of a model for given inputs, in evaluation mode");
  command->add_option("--model", flags->model, "By name; the program lists those it knows")->required();
  command->add_option("--weights", flags->weights, "Safetensors, or a state dict by torch.save; torchscript: brings its own");
  command->add_option("--input", flags->input, "Images: float32 .npy, samples first");
  command->add_option("--input-ids", flags->input_ids, "Text: token ids [B, T], .npy of integers");
  command->add_option("--attention-mask", flags->attention_mask, "Text: 1 where a token is [B, T], .npy of integers; all when left out");
  command->add_option("--output", flags->output, "The outputs, float32 .npy")->required();
  command->add_option("--batch", flags->batch, "Samples at a time")->check(positive_number())->capture_default_str();
  command->add_option("--threads", flags->threads, "Threads inside an operator; 0: as LibTorch chooses")
      ->check(number_from_zero())
      ->capture_default_str();
  command->callback([flags, &registry] { run_forward(registry.models, *flags); });
}

}  // namespace epipe::cli
