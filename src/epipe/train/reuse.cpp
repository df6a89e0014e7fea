#include "epipe/train/reuse.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/model/learned_codec.h"

namespace epipe::train {
namespace {

constexpr std::int64_t kTriedSamples = 8;
constexpr std::uint64_t kTriedEpochs = 4;
constexpr std::size_t kReuseKeyBytes = 32;

[[noreturn]] void refuse_reuse(const std::string& why) {
  throw std::invalid_argument("--reuse-activations: a sample would not cross the first cut with the same activation in every epoch: " +
                              why);
}

bool equal_tensors(const layer::Tensors& a, const layer::Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return torch::equal(x, y); });
}

layer::Batch tried_batch(const data::Dataset& data, std::uint64_t epoch) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(kTriedSamples, data.size())));
  std::iota(ids.begin(), ids.end(), 0);
  return data.batch(ids, {.seed = 1, .epoch = epoch, .step = epoch});
}

// The output of a layer in an epoch.
layer::Tensors front_output(layer::Layer& layer, const layer::Tensors& in, const layer::Batch& batch, std::uint64_t epoch) {
  layer::ForwardContext at;
  at.epoch = at.step = epoch;
  at.samples = batch.samples;
  at.side = batch.side;
  return layer.forward(in, at);
}

void check_cut(const Plan& plan) {
  if (plan.cuts.empty() || plan.first_trained < plan.cuts[0]) {
    refuse_reuse(fmt::format("layer {} before it is trained; --freeze those before the first cut", plan.first_trained));
  }
  const std::string& codec = plan.codecs[0].forward;
  if (model::split_learned(codec).learned) refuse_reuse(codec + " has layers before it, which are trained");
  if (codec == "auto") refuse_reuse("auto changes its rate as it goes; give its activations a rate, such as --codec-forward auto:2");
}

}  // namespace

void check_reuse_settings(const TrainConfig& config) {
  if (!config.reuse_activations) return;
  if (config.connect.empty()) {
    throw std::invalid_argument("--reuse-activations: a server keeps the activations; use it with --connect, or leave it out");
  }
  if (config.replicas > 1) throw std::invalid_argument("--reuse-activations is not for --replicas");
  if (config.follow_link || !config.rate_changes.empty()) {
    throw std::invalid_argument(
        "--reuse-activations: expected one rate for all activations of the first cut, but --follow-link and --rate-changes change it; "
        "leave them out, or --reuse-activations");
  }
  if (config.audit) {
    throw std::invalid_argument(
        "--reuse-activations: expected one rate for all activations of the first cut, but --audit codes some at a higher one; leave it "
        "out, or --reuse-activations");
  }
}

void require_constant_front(const TrainConfig& config, const Plan& plan, const model::Architecture& architecture,
                            const data::Dataset& data) {
  check_reuse_settings(config);
  check_cut(plan);
  const layer::Batch batch = tried_batch(data, 0);
  for (std::uint64_t epoch = 1; epoch < kTriedEpochs; ++epoch) {
    const layer::Batch later = tried_batch(data, epoch);
    if (!equal_tensors(batch.inputs, later.inputs) || !equal_tensors(batch.side, later.side))
      refuse_reuse("the data is augmented; use --augment none");
  }
  const torch::NoGradGuard no_grad;
  layer::Tensors x = batch.inputs;
  if (config.resize_on == "device" && config.image_size > 0) x[0] = torch::rand({batch.size(), 3, config.image_size, config.image_size});
  for (std::size_t l = 0; l < plan.cuts[0]; ++l) {
    const auto layer = architecture.layers[l].make();
    layer->initialize(config.seed);
    const layer::Tensors first = front_output(*layer, x, batch, 0);
    for (std::uint64_t epoch = 1; epoch < kTriedEpochs; ++epoch) {
      if (!equal_tensors(first, front_output(*layer, x, batch, epoch)))
        refuse_reuse(architecture.layers[l].name + " draws random numbers, as dropout does");
    }
    x = first;
  }
  if (x.size() != 1) refuse_reuse(fmt::format("{} tensors cross it together, and one is expected", x.size()));
}

std::string reuse_key(const std::string& run_dir) {
  const std::string path = run_dir + "/reuse.key";
  if (const auto file = read_file(path, 2 * kReuseKeyBytes); file && file.value().size() == 2 * kReuseKeyBytes) {
    return {reinterpret_cast<const char*>(file.value().data()), file.value().size()};
  }
  std::array<unsigned char, kReuseKeyBytes> bytes{};
  if (::getentropy(bytes.data(), bytes.size()) != 0) throw std::runtime_error("the operating system has no random numbers for a key");
  const std::string key = fmt::format("{:02x}", fmt::join(bytes, ""));
  Result<void> written = make_private_folders(run_dir);
  if (written) written = write_private_file(path, {std::as_bytes(std::span(key))});
  if (!written) throw std::runtime_error(written.error().message);
  return key;
}

}  // namespace epipe::train
