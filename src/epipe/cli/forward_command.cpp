// epipe forward
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "epipe/cli/command.h"
#include "epipe/cli/device_flag.h"
#include "epipe/cli/load_model.h"
#include "epipe/data/npy.h"
#include "epipe/model/hf_folder.h"

namespace epipe::cli {
namespace {

struct ForwardFlags {
  std::string model;
  std::string weights;
  std::string adapter;
  std::string input;
  std::string input_ids;
  std::string attention_mask;
  std::string output;
  std::int64_t batch = 32;
  std::string device = "cpu";
  int threads = 0;
};

// The inputs of a model, samples first.
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

// Padding must be on the right: a text begins with its first token.
void check_mask(const torch::Tensor& mask, const std::string& path) {
  const auto rises = mask.narrow(1, 1, mask.size(1) - 1).gt(mask.narrow(1, 0, mask.size(1) - 1));
  const bool only_bits = mask.eq(0).logical_or(mask.eq(1)).all().item<bool>();
  if (only_bits && !rises.any().item<bool>()) return;
  throw Failure(fmt::format("{}: expected 1 where a token is and 0 for the padding after it", path));
}

Inputs read_token_ids(const ForwardFlags& flags) {
  Inputs in;
  in.x = read_integers(flags.input_ids);
  if (in.x.dim() != 2 || in.x.numel() == 0) throw Failure(fmt::format("{}: expected token ids [B, T]", flags.input_ids));
  if (in.x.min().item<std::int64_t>() < 0) throw Failure(fmt::format("{}: expected token ids from 0 on", flags.input_ids));
  const auto mask = flags.attention_mask.empty() ? torch::ones_like(in.x) : read_integers(flags.attention_mask);
  if (mask.sizes() != in.x.sizes()) throw Failure(fmt::format("{}: expected the shape of the token ids", flags.attention_mask));
  check_mask(mask, flags.attention_mask);
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

// A Hugging Face folder says how many tokens its model takes, and how many there are.
void check_tokens(const model::Registry& models, const ForwardFlags& flags, const Inputs& in) {
  data::DataSpec any;
  any.kind = data::DataSpec::Kind::kText;
  any.shape = {1};
  const model::Architecture model = models.architecture(flags.model, any);
  if (model.vocabulary > 0 && in.spec.vocabulary > model.vocabulary) {
    throw Failure(fmt::format("{}: expected token ids from 0 to {}, got {}; is this the model's own tokenizer?", flags.input_ids,
                              model.vocabulary - 1, in.spec.vocabulary - 1));
  }
  if (model.positions > 0 && in.spec.shape[0] > model.positions) {
    throw Failure(fmt::format("{}: expected at most {} tokens in a text, the positions of the model, got {}; cut the texts",
                              flags.input_ids, model.positions, in.spec.shape[0]));
  }
}

// The outputs, on the CPU.
torch::Tensor forward_in_batches(const model::Model& model, const Inputs& in, std::int64_t batch, const torch::Device& device) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> outputs;
  for (std::int64_t begin = 0; begin < in.x.size(0); begin += batch) {
    const std::int64_t size = std::min(batch, in.x.size(0) - begin);
    layer::ForwardContext at;
    at.training = false;
    for (std::int64_t i = 0; i < size; ++i) at.samples.push_back(begin + i);
    for (const auto& side : in.side) at.side.push_back(side.narrow(0, begin, size).to(device));
    layer::Tensors x = {in.x.narrow(0, begin, size).to(device)};
    for (const auto& layer : model.layers) x = layer->forward(x, at);
    if (x.size() != 1) throw Failure(fmt::format("expected one tensor from {}, got {}; return only the wanted one", model.name, x.size()));
    outputs.push_back(x[0].to(torch::kCPU, torch::kFloat32));
  }
  return torch::cat(outputs);
}

void run_forward(const model::Registry& models, const ForwardFlags& flags) {
  if (flags.input.empty() == flags.input_ids.empty()) throw UsageError("give --input for images, or --input-ids for text");
  const bool brings_weights = flags.model.starts_with("torchscript:") || model::hf_folder_of(flags.model);
  if (flags.weights.empty() && !brings_weights) throw UsageError("--weights is required");
  check_device_exists("--devices", flags.device);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  try {
    if (!flags.input.empty() && models.takes_text(flags.model)) throw UsageError(flags.model + " reads text: give --input-ids");
    const Inputs in = flags.input.empty() ? read_token_ids(flags) : read_images(flags);
    if (!flags.input_ids.empty() && model::hf_folder_of(flags.model)) check_tokens(models, flags, in);
    const auto model = load_model(models, {flags.model, flags.weights, flags.adapter, flags.device}, in.spec);
    auto y = forward_in_batches(model, in, flags.batch, torch::Device(flags.device));
    if (y.dim() == 3 && !in.side.empty()) y *= in.side[0].unsqueeze(-1);  // logits of tokens: zero at the padding
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
  command->add_option("--weights", flags->weights, "Safetensors, or a state dict by torch.save; torchscript: and hf: bring their own");
  command->add_option("--adapter", flags->adapter, "A LoRA adapter: a folder by PEFT, or RUN/adapter");
  command->add_option("--input", flags->input, "Images: float32 .npy, samples first");
  command->add_option("--input-ids", flags->input_ids, "Text: token ids [B, T], .npy of integers");
  command->add_option("--attention-mask", flags->attention_mask, "Text: 1 at tokens [B, T], .npy of integers; default: all 1");
  command->add_option("--output", flags->output, "The outputs, float32 .npy")->required();
  command->add_option("--batch", flags->batch, "Samples at a time")->check(positive_number())->capture_default_str();
  command->add_option("--devices", flags->device, "The device that runs the model: cpu, cuda or cuda:N")->capture_default_str();
  command->add_option("--threads", flags->threads, "Threads inside an operator; 0: as LibTorch chooses")
      ->check(number_from_zero())
      ->capture_default_str();
  command->callback([flags, &registry] { run_forward(registry.models, *flags); });
}

}  // namespace epipe::cli
