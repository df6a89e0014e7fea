#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "epipe/train/lr_schedule.h"
#include "epipe/train/optimizer.h"

namespace epipe::train {

// A codec for one cut and direction: "1:backward=sort:6+2".
struct CodecAt {
  std::size_t cut = 0;
  bool forward = true;
  std::string spec;
};
// Throws std::invalid_argument.
CodecAt parse_codec_at(const std::string& text);

// Everything a run is made of, as the flags of `epipe train` name it.
struct TrainConfig {
  std::string model = "cnn";
  std::string weights;               // a file the model starts from; empty: first values by the seed
  std::string data = "synthetic";    // data/open.h says what may follow
  std::int64_t image_size = 0;       // pixels; 0: the data's own or 224
  std::string resize_on = "loader";  // or "device": the first stage resizes, after augmentation at the data's own size
  std::string augment = "auto";      // auto, none, crop, resized-crop
  std::int64_t max_length = 0;       // tokens; 0: 128
  std::string bpe;                   // folder of the tokenizer's files; empty: found near the data
  double data_part = 1;              // the share of all samples that is used, the same ones in every run
  int load_threads = 4;              // that make batches ahead; they change no result

  std::vector<std::string> cuts;  // layer indices or names; empty: balanced, one stage per entry of `place`
  std::string balance = "flops";  // how, without cuts: by FLOPs, or by a measurement ("measured")
  std::vector<int> place = {0};
  int chunks = 1;
  std::string schedule = "gpipe";
  std::string codec = "none";  // every cut, both directions
  std::string codec_forward;   // overrides codec
  std::string codec_backward;
  std::vector<CodecAt> codec_at;  // overrides both
  bool moments = false;
  bool recompute = false;
  std::string precision = "fp32";     // fp32, bf16, fp16
  std::string loss_scaling = "auto";  // on, off; auto: on with fp16
  int threads = 1;
  std::vector<std::string> devices;

  int epochs = 1;
  std::int64_t batch = 64;
  std::string loss = "auto";
  std::string optimizer = "sgd";
  OptimizerConfig update{};
  double lr = 0.05;
  std::string lr_schedule = "constant";
  double lr_power = 2;
  std::int64_t warmup = 0;  // steps
  double clip = 0;          // of the gradient's norm over all stages; 0: none
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::int64_t max_steps = 0;  // 0: all epochs

  int replicas = 1;              // of all workers, each with its part of every batch, as ranks of a cluster
  std::int64_t bucket = 4096;    // KiB of gradients that replicas sum at once
  std::string backend = "gloo";  // between the ranks of a cluster; or nccl
  int local_rank = 0;            // of this process among the ranks of its machine; no flag

  std::vector<std::string> connect;  // servers of workers 1, 2, ...; empty: all workers are in this process, or ranks of a cluster
  double timeout = 120;              // seconds without a sign of another process within a step, after which it counts as lost
  double reconnect = 300;            // seconds of trying to connect again before giving up

  std::string run_dir;
  std::int64_t checkpoint_every = 0;  // steps; 0: only at the end
  bool resume = false;
  std::int64_t error_every = 10;  // steps between measurements of the codecs' error; 0: never
};

// What only the client of a run uses, but a run that continues must share, by flag.
std::map<std::string, std::string> client_settings(const TrainConfig& config);

// The configuration as the text of a TOML file that `epipe train --config` reads back.
std::string to_toml(const TrainConfig& config);

}  // namespace epipe::train
