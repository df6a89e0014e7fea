// epipe bench codec
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "epipe/base/clock.h"
#include "epipe/base/median.h"
#include "epipe/cli/bench/benches.h"
#include "epipe/cli/bench/device_bench.h"
#include "epipe/cli/bench/tensors.h"
#include "epipe/cli/bench/torch_ops.h"
#include "epipe/cli/command.h"
#include "epipe/cli/measurement.h"
#include "epipe/codec/frame_codec.h"

namespace epipe::cli {
namespace {

struct CodecBenchFlags {
  std::vector<std::string> codecs;
  int threads = 1;
  bool json = false;
  bool quick = false;
  double seconds = 1.0;
  DeviceBenchFlags on_device;
};

const std::vector<std::string>& every_codec() {
  static const std::vector<std::string> codecs = {
      "none",     "fp16",     "bf16",     "uniform:8", "uniform:4", "sort:6+2",      "sort:3+1",          "sort:12+4",          "fast:6+2",
      "kmeans:4", "kmeans:8", "topk:0.1", "topk:0.01", "power:4",   "lowrank:12",    "power:4>uniform:8", "topk:0.1>uniform:8", "ec:4",
      "ec:2",     "dct:1",    "dct:0.25", "auto:1",    "dct@0.01",  "topk:0.1>ec:2", "power:4>ec:4",
  };
  return codecs;
}

// The reference's method on one thread, in the units of a Measurement. Only three calls: each takes seconds.
codec::Measurement measure_host_torch_ops(const torch::Tensor& x, const std::string& spec, double memcpy_MBps) {
  const bool sort = spec.starts_with("sort");
  TorchOpsEncoded encoded;
  torch::Tensor decoded;
  std::vector<double> encode;
  std::vector<double> decode;
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 3; ++i) {
    const Stopwatch encoding;
    encoded = sort ? torch_ops_sort(x, 6, 2) : torch_ops_uniform(x, 8);
    encode.push_back(encoding.seconds());
    const Stopwatch decoding;
    decoded = torch_ops_decode(encoded, sort ? 6 : 8, x.sizes());
    decode.push_back(decoding.seconds());
  }
  codec::Measurement m;
  m.values = static_cast<std::size_t>(x.numel());
  m.wire_bytes = m.values + 8 * static_cast<std::size_t>(encoded.mins.numel());
  m.bits_per_value = 8.0 * static_cast<double>(m.wire_bytes) / static_cast<double>(m.values);
  m.rel_error = codec::relative_error(x, decoded);
  const double megabytes = static_cast<double>(x.nbytes()) / 1e6;
  m.encode_MBps = megabytes / median(encode);
  m.decode_MBps = megabytes / median(decode);
  m.memcpy_MBps = memcpy_MBps;
  return m;
}

struct Speedup {
  double encode, decode;
};

// Alternates between one thread and `threads`; returns the medians of the paired ratios.
Speedup paired_speedup(const std::string& spec, const torch::Tensor& x, int threads) {
  ThreadPool pool(threads);
  const auto one = codec_from_flag(spec, {});
  const auto many = codec_from_flag(spec, {&pool});
  Bytes out;
  const auto encode = [&](codec::Codec& codec, ThreadPool* shared) {
    out.clear();
    const Stopwatch watch;
    value_or_fail(codec::encode_frame(codec, x, {}, {}, shared, out));
    return watch.seconds();
  };
  const auto decode = [&, y = torch::empty_like(x)](ThreadPool* shared) {
    const Stopwatch watch;
    value_or_fail(codec::decode_frame(out, {}, {shared}, y));
    return watch.seconds();
  };
  std::vector<double> encoding;
  std::vector<double> decoding;
  for (int pair = 0; pair < 21; ++pair) {
    encoding.push_back(encode(*one, nullptr) / encode(*many, &pool));
    decoding.push_back(decode(nullptr) / decode(&pool));
  }
  return {median(encoding), median(decoding)};
}

class Report {
 public:
  explicit Report(const CodecBenchFlags& flags) : flags_(flags), show_progress_(isatty(STDERR_FILENO) != 0) {}

  void add(const NamedTensor& tensor, const std::string& codec, const codec::Measurement& m) {
    if (!flags_.json) {
      table_.add(tensor.name, codec, m);
      return;
    }
    auto line = to_json(codec, m);
    line["tensor"] = tensor.name;
    line["threads"] = flags_.threads;
    line["encode_ratio"] = m.encode_MBps / m.memcpy_MBps;
    line["decode_ratio"] = m.decode_MBps / m.memcpy_MBps;
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
  void add_speedup(const NamedTensor& tensor, const std::string& codec, int threads, const Speedup& speedup) {
    if (flags_.json) {
      const nlohmann::json line = {{"tensor", tensor.name},
                                   {"codec", codec},
                                   {"threads", threads},
                                   {"encode_speedup_over_one_thread", speedup.encode},
                                   {"decode_speedup_over_one_thread", speedup.decode}};
      fmt::print("{}\n", line.dump());
    } else {
      notes_.push_back(
          fmt::format("{} of {} with {} threads: encodes {:.2f} and decodes {:.2f} times as fast as with one (medians of 21 pairs)", codec,
                      tensor.name, threads, speedup.encode, speedup.decode));
    }
  }
  void progress(const NamedTensor& tensor, const std::string& codec) const {
    if (show_progress_) fmt::print(stderr, "\r\033[K{} {}", tensor.name, codec);
  }
  void finish() const {
    if (show_progress_) fmt::print(stderr, "\r\033[K");
    if (!flags_.json) table_.print();
    for (const std::string& note : notes_) fmt::print("{}\n", note);
  }

 private:
  const CodecBenchFlags& flags_;
  bool show_progress_;
  MeasurementTable table_;
  std::vector<std::string> notes_;
};

std::vector<NamedTensor> bench_tensors(bool quick) {
  if (quick) return {relu6_maps(8, 32, 56, 56), heavy_gradients(8, 32, 56, 56), gaussian_text(4, 128, 256)};
  return {relu6_maps(32, 32, 112, 112), gaussian_text(8, 128, 768)};
}

void run_codec_bench(const CodecBenchFlags& flags) {
  if (!flags.on_device.device.empty()) {
    DeviceBenchFlags on_device = flags.on_device;
    on_device.codecs = flags.codecs;
    on_device.json = flags.json;
    return run_device_bench(on_device);
  }
  ThreadPool pool(flags.threads);
  const codec::CodecOptions options{&pool};
  const auto& specs = flags.codecs.empty() ? every_codec() : flags.codecs;
  for (const auto& spec : specs) codec_from_flag(spec, options);  // complain before the work starts
  at::set_num_threads(flags.threads);
  const codec::MeasureOptions how{flags.quick ? 0.1 : flags.seconds};

  Report report(flags);
  for (const NamedTensor& tensor : bench_tensors(flags.quick)) {
    for (const auto& spec : specs) {
      report.progress(tensor, spec);
      const auto m = value_or_fail(codec::measure(spec, tensor.x, options, how));
      report.add(tensor, spec, m);
      const bool has_baseline = (spec == "sort:6+2" || spec == "uniform:8") && flags.threads == 1 && !flags.quick;
      if (has_baseline) report.add(tensor, "torch-ops " + spec, measure_host_torch_ops(tensor.x, spec, m.memcpy_MBps));
      const bool paired = (spec == "sort:6+2" || spec == "ec:2" || spec == "dct:1") && flags.threads == 1 && !flags.quick;
      if (paired) report.add_speedup(tensor, spec, 2, paired_speedup(spec, tensor.x, 2));
    }
  }
  report.finish();
}

}  // namespace

void add_codec_bench(CLI::App& bench) {
  auto flags = std::make_shared<CodecBenchFlags>();  // owned by the callback as well
  auto* codec = bench.add_subcommand("codec", "Every codec on generated tensors, against memcpy and LibTorch operators");
  codec->add_option("--codec", flags->codecs, "Only these codecs");
  codec->add_option("--threads", flags->threads, "Threads that share the work")->check(CLI::Range(1, 1024))->capture_default_str();
  codec->add_option("--seconds", flags->seconds, "Time spent on each row")->check(positive_number())->capture_default_str();
  codec->add_flag("--quick", flags->quick, "Small tensors and short rounds, no baselines");
  codec->add_option("--device", flags->on_device.device, "Kernels on this CUDA device instead, against a copy there");
  codec->add_option("--shape", flags->on_device.shape, "Shape of the tensors on the device")->delimiter(',')->capture_default_str();
  codec->add_flag("--json", flags->json, "One JSON object per row");
  codec->callback([flags] { run_codec_bench(*flags); });
}

}  // namespace epipe::cli
