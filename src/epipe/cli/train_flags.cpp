#include "epipe/cli/train_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "epipe/cli/command.h"
#include "epipe/cli/device_flag.h"
#include "epipe/cli/measurement.h"
#include "epipe/data/open.h"
#include "epipe/model/learned_codec.h"
#include "epipe/model/model.h"

namespace epipe::cli {
namespace {

using train::TrainConfig;

// First and last stage here, one server for each stage between.
std::vector<int> ring_of_servers(std::size_t servers) {
  std::vector<int> place = {0};
  for (std::size_t s = 1; s <= servers; ++s) place.push_back(static_cast<int>(s));
  place.push_back(0);
  return place;
}

// Whether or not a cut will use it.
void check_codec(std::string_view flag, const std::string& spec) {
  try {
    codec_from_flag(model::split_learned(spec).wire, {}, flag);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("{}: {}", flag, error.what()));
  }
}

// Nothing would come of a codec.
void check_uncut(std::string_view flag, const std::string& spec) {
  if (spec.empty() || spec == "none") return;
  throw UsageError(fmt::format(
      "{} {} codes what crosses a cut, but there is none: cut the model with --cuts or --place, such as --place 0,1, or take none", flag,
      spec));
}

void check_uncut(const TrainConfig& config) {
  check_uncut("--codec", config.codec);
  check_uncut("--codec-forward", config.codec_forward);
  check_uncut("--codec-backward", config.codec_backward);
  if (!config.codec_at.empty()) check_uncut("--codec-at", config.codec_at.front().spec);
  if (config.moments) throw UsageError("--moments belong to what crosses a cut, but there is none: cut the model with --cuts or --place");
}

void check_codecs(const TrainConfig& config) {
  check_codec("--codec", config.codec);
  if (!config.codec_forward.empty()) check_codec("--codec-forward", config.codec_forward);
  if (!config.codec_backward.empty()) check_codec("--codec-backward", config.codec_backward);
  for (const train::CodecAt& at : config.codec_at) check_codec("--codec-at", at.spec);
}

}  // namespace

std::uint64_t seed_of(const std::string& text) {
  std::uint64_t seed = 0;
  if (text == kRandomSeed) {
    if (::getentropy(&seed, sizeof(seed)) != 0) throw Failure("the operating system has no random numbers for --seed random");
    return seed;
  }
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (status != std::errc() || stop != text.data() + text.size()) {
    throw UsageError(fmt::format("--seed: expected a number from 0 to 18446744073709551615, or random, got {}", text));
  }
  return seed;
}

TrainConfig checked(const TrainFlags& flags) {
  TrainConfig config = flags.config;
  try {
    for (const std::string& text : flags.codec_at) config.codec_at.push_back(train::parse_codec_at(text));
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string("--codec-at: ") + error.what());
  }
  check_codecs(config);
  config.seed = seed_of(flags.seed);
  for (const std::string& device : config.devices) check_device("--devices", device);
  if (!config.connect.empty() && config.place.size() == 1) config.place = ring_of_servers(config.connect.size());
  const int workers = *std::max_element(config.place.begin(), config.place.end()) + 1;
  if (!config.connect.empty() && static_cast<std::size_t>(workers) != config.connect.size() + 1) {
    throw UsageError(fmt::format("--place names {} workers, but --connect makes {}: this process and {} servers", workers,
                                 config.connect.size() + 1, config.connect.size()));
  }
  if (!config.connect.empty() && config.replicas > 1) {
    throw UsageError("--replicas are ranks of a cluster (epipe launch), --connect takes one replica to servers: leave one of them out");
  }
  if (config.place.size() > 1 && !config.cuts.empty() && config.cuts.size() + 1 != config.place.size()) {
    throw UsageError(
        fmt::format("{} cuts make {} stages, but --place names {}", config.cuts.size(), config.cuts.size() + 1, config.place.size()));
  }
  if (config.place.size() == 1 && !config.cuts.empty()) {
    config.place.clear();
    for (std::size_t j = 0; j <= config.cuts.size(); ++j) config.place.push_back(static_cast<int>(j));
  }
  if (config.place.size() == 1) check_uncut(config);
  return config;
}

namespace {

void add_data_flags(CLI::App& command, TrainConfig& c) {
  command.add_option("--image-size", c.image_size, "Pixels of an image's edge; 0: CIFAR's own 32, otherwise 224")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command
      .add_option("--resize-on", c.resize_on, "Where images of one size (CIFAR) become --image-size: loader, or device of the first stage")
      ->check(CLI::IsMember({"loader", "device"}))
      ->capture_default_str();
  command.add_option("--augment", c.augment, "Of training images: auto, none, crop or resized-crop")
      ->check(CLI::IsMember({"auto", "none", "crop", "resized-crop"}))
      ->capture_default_str();
  command
      .add_flag_callback(
          "--no-augment", [&c] { c.augment = "none"; }, "The same as --augment none")
      ->configurable(false);
  command.add_option("--max-length", c.max_length, "Tokens of a text, special ones included; 0: 128")
      ->check(CLI::Range(0, 1 << 16))
      ->capture_default_str();
  command.add_option("--bpe", c.bpe, "Folder of vocab.json and merges.txt; left out: roberta-bpe in the data's folder or above it");
  command.add_option("--data-part", c.data_part, "LocalTrainer of the samples that is used, the same ones whatever the seed; 1: all")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  command.add_option("--load-threads", c.load_threads, "Threads that make batches ahead of training")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

}  // namespace

void add_stage_flags(CLI::App& command, TrainFlags& flags) {
  TrainConfig& c = flags.config;
  command.add_option("--model", c.model, "By name; the program lists those it knows")->capture_default_str();
  command.add_option("--data", c.data, "By name; the program lists what it knows")->capture_default_str();
  command.add_option("--loss", c.loss, "By name; the program lists those it knows")->capture_default_str();
  add_data_flags(command, c);
  command.add_option("--cuts", c.cuts, "Layers (index or name) at which a stage begins, e.g. 1,3; balanced when left out")->delimiter(',');
  command.add_option("--balance", c.balance, "Without --cuts: balance the stages by flops, or by what layers take here (measured)")
      ->check(CLI::IsMember({"flops", "measured"}))
      ->capture_default_str();
  command.add_option("--place", c.place, "Worker of each stage: 0,1,0 is the client/server ring, 0,1,2 a chain")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("--chunks", c.chunks, "Micro-batches per batch")->check(CLI::Range(1, 4096))->capture_default_str();
  command.add_option("--codec", c.codec, "Codec of every cut, e.g. sort:6+2, or a learned one, e.g. conv:20x3>uniform:8")
      ->capture_default_str();
  command.add_option("--codec-forward", c.codec_forward, "Codec of activations, instead of --codec");
  command.add_option("--codec-backward", c.codec_backward, "Codec of gradients, instead of --codec");
  command.add_option("--codec-at", flags.codec_at, "CUT:DIRECTION=CODEC for one cut and direction, e.g. 1:backward=topk:0.1");
  command.add_option("--batch", c.batch, "Samples per batch")->check(positive_number())->capture_default_str();
  command.add_option("--seed", flags.seed, "Of weights, data order and dropout: a number, or random (recorded in config.toml)")
      ->capture_default_str();
  command.add_option("--threads", c.threads, "Threads of each worker inside an operator")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_option("--precision", c.precision, "fp32, or mixed: products and convolutions in bf16 or fp16, weights in fp32")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  command.add_option("--devices", c.devices, "Device of each worker, e.g. cpu,cuda:0; in a cluster, cuda is the rank's own")
      ->delimiter(',');
}

namespace {

void add_network_flags(CLI::App& command, TrainFlags& flags) {
  TrainConfig& c = flags.config;
  command
      .add_option(
          "--replicas", c.replicas,
          "Data parallel: so many copies of all workers, each with its part of every batch; as ranks: epipe launch -n REPLICAS*WORKERS")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_option("--bucket", c.bucket, "KiB of gradients that replicas sum at once, while backward goes on")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--backend", c.backend, "Between the ranks of a cluster: gloo through the CPU, nccl between CUDA devices")
      ->check(CLI::IsMember({"gloo", "nccl"}))
      ->capture_default_str();
  command.add_option("--connect", c.connect, "Servers (epipe serve) that hold the middle stages, HOST:PORT,...")->delimiter(',');
  command.add_option("--timeout", c.timeout, "Seconds without a sign of another process, after which it counts as lost")
      ->check(positive_number())
      ->capture_default_str();
  command.add_option("--reconnect", c.reconnect, "Seconds of trying to connect again before giving up")
      ->check(number_from_zero())
      ->capture_default_str();
  add_security_flags(command, flags.security, false);
}

void add_training_flags(CLI::App& command, TrainFlags& flags) {
  TrainConfig& c = flags.config;
  command.add_option("--schedule", c.schedule, "gpipe or 1f1b")->check(CLI::IsMember({"gpipe", "1f1b"}))->capture_default_str();
  command.add_flag("--moments", c.moments,
                   "Send sums of gradients times activations beside coded gradients of maps with at most 64 channels, and keep them");
  command.add_flag("--recompute", c.recompute, "Keep only the inputs of a stage and run its forward again before its backward");
  command
      .add_option("--loss-scaling", c.loss_scaling,
                  "Skip steps whose gradients are not finite and adapt a factor of the loss; auto: with fp16")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  command.add_option("--epochs", c.epochs, "Passes over the training data")->check(positive_number())->capture_default_str();
  command.add_option("--max-steps", c.max_steps, "Stop after so many steps; 0: all epochs")
      ->check(number_from_zero())
      ->capture_default_str();
  command.add_option("--optimizer", c.optimizer, "sgd, adam or adamw")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}))
      ->capture_default_str();
  command.add_option("--lr", c.lr, "Learning rate")->check(number_from_zero())->capture_default_str();
  command.add_option("--lr-schedule", c.lr_schedule, "constant, cosine, linear or polynomial")
      ->check(CLI::IsMember({"constant", "cosine", "linear", "polynomial"}))
      ->capture_default_str();
  command.add_option("--lr-power", c.lr_power, "Exponent of the polynomial schedule")->capture_default_str();
  command.add_option("--warmup", c.warmup, "Steps of linear warm-up")->check(number_from_zero())->capture_default_str();
  command.add_option("--momentum", c.update.momentum, "sgd")->check(number_from_zero())->capture_default_str();
  command.add_flag("--nesterov", c.update.nesterov, "sgd: Nesterov's momentum");
  command.add_option("--weight-decay", c.update.weight_decay, "")->check(number_from_zero())->capture_default_str();
  command.add_option("--clip", c.clip, "Largest norm of the gradient over all stages; 0: none")
      ->check(number_from_zero())
      ->capture_default_str();
  command.add_flag("!--no-shuffle", c.shuffle, "Take the samples in their order");
  command.add_option("--run-dir", c.run_dir, "Folder for everything the run writes; needed");
  command.add_option("--checkpoint-every", c.checkpoint_every, "Steps between checkpoints; 0: only at the end")
      ->check(number_from_zero())
      ->capture_default_str();
  command
      .add_flag("--resume", c.resume,
                "Continue from the newest checkpoint of the run directory; flags left out are as its config.toml has them")
      ->configurable(false);
  command.add_option("--error-every", c.error_every, "Steps between measurements of the codecs' error; 0: never")
      ->check(number_from_zero())
      ->capture_default_str();
}

}  // namespace

void add_train_flags(CLI::App& command, TrainFlags& flags) {
  add_stage_flags(command, flags);
  command.add_option("--weights", flags.config.weights, "Start from this file: safetensors or a state dict by torch.save");
  add_training_flags(command, flags);
  add_network_flags(command, flags);
}

}  // namespace epipe::cli
