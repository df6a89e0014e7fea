// epipe::RemoteStage: a stage on a server, over session/.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"
#include "epipe/cli/security_flags.h"
#include "epipe/codec/codec.h"
#include "epipe/data_spec_adapter.h"
#include "epipe/epipe.h"
#include "epipe/loop_codec.h"
#include "epipe/model/hf_folder.h"
#include "epipe/session/remote_stage.h"
#include "epipe/session/servers.h"
#include "epipe/train/adaptation.h"
#include "epipe/train/initial_weights.h"
#include "epipe/train/plan.h"
#include "epipe/train/registry.h"

namespace epipe {
namespace {

std::string stage_codec(const std::string& spec) {
  const std::string own = loop_codec(spec, " is layers on both sides of a cut, of which a remote stage has one; use another codec");
  if (const auto made = codec::make_codec(own); !made) throw std::invalid_argument(made.error().text());
  return own;
}

void check_numbers(const RemoteStageOptions& o) {
  const auto at_least_0 = [](const char* name, double value) {
    if (value >= 0 && std::isfinite(value)) return;
    throw std::invalid_argument(fmt::format("{}: expected 0 or more, got {}", name, value));
  };
  at_least_0("lr", o.lr);
  at_least_0("momentum", o.momentum);
  at_least_0("weight_decay", o.weight_decay);
  at_least_0("eps", o.eps);
  if (!(o.timeout > 0)) throw std::invalid_argument(fmt::format("timeout: expected seconds above 0, got {}", o.timeout));
  if (o.optimizer != "sgd" && o.optimizer != "adam" && o.optimizer != "adamw") {
    throw std::invalid_argument(fmt::format("optimizer: expected sgd, adam or adamw, got \"{}\"", o.optimizer));
  }
}

// The weights of the whole model, if a file or a Hugging Face folder has them.
train::WeightsFiles files_of(const RemoteStageOptions& o) {
  const auto folder = model::hf_folder_of(o.model);
  return {o.weights.empty() && folder && model::has_hf_weights(*folder) ? *folder : o.weights};
}

// Fills in the model's default targets if none are given.
std::string whole_lora(const RemoteStageOptions& o, const train::Registry& registry) {
  if (o.lora.empty()) return "";
  train::TrainConfig config;
  config.lora = o.lora;
  return train::whole_lora(config, registry.models.architecture(o.model, to_private(o.data), o.seed));
}

// Makes the plan like `epipe train`, for a ring in which the client has no layers.
train::Plan plan_of(const RemoteStageOptions& o, const train::Registry& registry, std::size_t end_layer) {
  train::Plan plan;
  plan.model = registry.models.portable_name(o.model);
  if (!registry.models.is_portable(plan.model)) {
    throw std::invalid_argument(fmt::format("{} cannot be built by a server, which opens no files", o.model));
  }
  plan.place = {0, 1, 0};
  plan.cuts = {o.first_layer, end_layer};
  plan.codecs.assign(2, {o.codec_forward, o.codec_backward});
  plan.chunks = o.chunks;
  plan.threads = o.threads;
  plan.optimizer = o.optimizer;
  plan.momentum = o.momentum;
  plan.nesterov = o.nesterov;
  plan.weight_decay = o.weight_decay;
  plan.beta1 = o.beta1;
  plan.beta2 = o.beta2;
  plan.eps = o.eps;
  plan.data = to_private(o.data);
  plan.lora = o.lora;
  plan.seed = train::worker_seed(o.seed);
  return plan;
}

transport::ConnectConfig dial_of(const RemoteStageOptions& o) {
  cli::SecurityFlags flags;
  flags.insecure = o.insecure;
  flags.tls = o.token.empty() ? o.tls : "";
  if (!o.token.empty() && !o.tls.empty()) flags.ca = o.tls + "/ca.pem";
  if (!o.insecure && o.tls.empty())
    throw std::invalid_argument("expected tls, a folder with ca.pem and token, or insecure within this machine");
  try {
    transport::ConnectConfig dial = cli::connect_config(flags);
    if (!o.token.empty()) dial.token = o.token;
    dial.send_timeout = transport::Timeout(static_cast<std::int64_t>(o.timeout * 1000));
    return dial;
  } catch (const cli::UsageError& error) {
    throw std::invalid_argument(error.what());
  }
}

session::SessionKey key_of_run(const std::string& run_dir) {
  if (run_dir.empty()) return session::new_session_key();
  const auto files = list_folder(run_dir);
  return session::session_key(run_dir, std::find(files.begin(), files.end(), "session.json") != files.end());
}

std::vector<Traffic> of_cuts(const boundary::Traffic& before, const boundary::Traffic& after) {
  return {{before.wire_bytes, before.values}, {after.wire_bytes, after.values}};
}

// Converts internal exceptions to the library's.
template <typename Work>
auto translated(const Work& work) {
  try {
    return work();
  } catch (const session::RolledBack& error) {
    throw RolledBack(error.what());
  } catch (const session::PeerFailed& error) {
    throw ServerFailed(error.what());
  } catch (const transport::ConnectionLost& error) {
    throw ServerLost(error.what());
  } catch (const transport::TimedOut& error) {
    throw ServerLost(error.what());
  }
}

}  // namespace

class RemoteStage::Impl {
 public:
  explicit Impl(const RemoteStageOptions& given) : options_(given) {
    for (std::string* const codec : {&options_.codec_forward, &options_.codec_backward}) *codec = stage_codec(*codec);
    check_numbers(options_);
    options_.lora = whole_lora(options_, registry_);
    const model::Architecture looked_at = architecture();
    check_layers(looked_at.layers.size());
    for (std::size_t l = options_.first_layer; l < options_.end_layer; ++l) layers_.push_back(looked_at.layers[l].name);
    servers_ = std::make_unique<session::Servers>(std::vector{options_.connect}, dial_of(options_), key_of_run(options_.run_dir));
    stage_ = translated([&] { return std::make_unique<session::RemoteStage>(*servers_, config_of(looked_at)); });
  }

  session::RemoteStage& stage() { return *stage_; }
  const RemoteStageOptions& options() const { return options_; }
  const std::vector<std::string>& layers() const { return layers_; }

 private:
  model::Architecture architecture() const {
    model::Adaptation adaptation;
    if (!options_.lora.empty()) adaptation.lora = layer::parse_lora(options_.lora);
    return train::make_architecture(registry_, options_.model, to_private(options_.data), options_.seed, adaptation);
  }

  void check_layers(std::size_t count) {
    if (options_.end_layer == 0) options_.end_layer = count;
    if (options_.first_layer < options_.end_layer && options_.end_layer <= count) return;
    throw std::invalid_argument(
        fmt::format("layers: expected a first one and an end after it, from 0 to the model's {} layers, got {} and {}", count,
                    options_.first_layer, options_.end_layer));
  }

  session::RemoteStageConfig config_of(const model::Architecture& looked_at) {
    const train::Plan plan = plan_of(options_, registry_, options_.end_layer);
    session::RemoteStageConfig config;
    config.spec = train::to_json(plan);
    config.codecs = {plan.codecs[0], plan.codecs[1]};
    config.first_layer = options_.first_layer;
    config.end_layer = options_.end_layer;
    if (!options_.run_dir.empty()) config.checkpoints = options_.run_dir + "/checkpoints";
    config.fingerprint = train::checkpoint_fingerprint(plan).dump();
    config.require_same_run = [plan](const std::string& fingerprint) { train::require_same_run(plan, fingerprint); };
    config.timeout = transport::Timeout(static_cast<std::int64_t>(options_.timeout * 1000));
    config.poll = options_.poll;
    config.note = options_.note;
    config.initial_weights = [this]() -> session::LayerWeights {
      const auto weights = std::make_shared<train::InitialWeights>(architecture(), options_.seed, files_of(options_),
                                                                   model::NewParts::kHeadAndCodec);  // shared with copies of the function
      return [weights](std::size_t layer) { return weights->of_layer(layer); };
    };
    for (std::size_t l = options_.first_layer; l < options_.end_layer; ++l) {
      auto& of_layer = expected_[l] = session::weights_of(*looked_at.layers[l].make());
      for (auto& [name, tensor] : of_layer) {
        tensor = torch::empty(tensor.sizes(), torch::TensorOptions(tensor.scalar_type()).device(torch::kMeta));
      }
    }
    config.expected_weights = [this](std::size_t layer) { return expected_.at(layer); };
    return config;
  }

  RemoteStageOptions options_;
  train::Registry registry_;
  std::vector<std::string> layers_;
  std::map<std::size_t, model::NamedTensors> expected_;  // names, shapes and types by layer, without values
  std::unique_ptr<session::Servers> servers_;
  std::unique_ptr<session::RemoteStage> stage_;
};

RemoteStage::RemoteStage(RemoteStageOptions options) : impl_(std::make_unique<Impl>(options)) {}
RemoteStage::~RemoteStage() = default;
RemoteStage::RemoteStage(RemoteStage&&) noexcept = default;
RemoteStage& RemoteStage::operator=(RemoteStage&&) noexcept = default;

std::uint32_t RemoteStage::forward(const torch::Tensor& x, bool training) {
  return translated([&] { return impl_->stage().forward(x, training); });
}
torch::Tensor RemoteStage::output(std::uint32_t micro_batch) {
  return translated([&] { return impl_->stage().output(micro_batch); });
}
void RemoteStage::backward(std::uint32_t micro_batch, const torch::Tensor& gradient) {
  translated([&] { impl_->stage().backward(micro_batch, gradient); });
}
torch::Tensor RemoteStage::gradient(std::uint32_t micro_batch) {
  return translated([&] { return impl_->stage().gradient(micro_batch); });
}
void RemoteStage::step() { step(impl_->options().lr); }
void RemoteStage::step(double lr) {
  if (!(lr >= 0) || !std::isfinite(lr)) throw std::invalid_argument(fmt::format("lr: expected 0 or more, got {}", lr));
  translated([&] { impl_->stage().commit(lr); });
}
void RemoteStage::discard() { impl_->stage().discard(); }
std::uint64_t RemoteStage::steps_done() const { return impl_->stage().steps_done(); }
void RemoteStage::save(std::span<const std::byte> own) {
  translated([&] { impl_->stage().save(own); });
}
std::span<const std::byte> RemoteStage::saved() const { return impl_->stage().saved(); }
std::map<std::string, torch::Tensor> RemoteStage::weights() {
  return translated([&] { return impl_->stage().weights(); });
}
std::vector<std::string> RemoteStage::layers() const { return impl_->layers(); }
RemoteStage::Crossed RemoteStage::take_traffic() {
  const auto [before, after] = impl_->stage().take_traffic();
  return {of_cuts(before.forward, after.forward), of_cuts(before.backward, after.backward)};
}
void RemoteStage::end() { impl_->stage().end(); }
void RemoteStage::leave() { impl_->stage().leave(); }

}  // namespace epipe
