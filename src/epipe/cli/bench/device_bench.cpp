#include "epipe/cli/bench/device_bench.h"

#include <fmt/format.h>
#include <torch/cuda.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "epipe/base/median.h"
#include "epipe/cli/bench/device_times.h"
#include "epipe/cli/bench/tensors.h"
#include "epipe/cli/bench/torch_ops.h"
#include "epipe/cli/command.h"
#include "epipe/cli/measurement.h"
#include "epipe/codec/cuda/device_codec.h"
#include "epipe/codec/measure.h"

namespace epipe::cli {
namespace {

const std::vector<std::string>& codecs_with_kernels() {
  static const std::vector<std::string> codecs = {
      "none", "fp16", "uniform:8", "uniform:4", "sort:6+2", "sort:3+1", "fast:6+2",           "kmeans:4", "topk:0.1",  "topk:0.1>ec:2",
      "ec:4", "ec:2", "dct:1",     "dct:0.25",  "auto:1",   "dct@0.01", "topk:0.1>uniform:8", "power:4",  "lowrank:12"};
  return codecs;
}

double gigabytes_per_second(std::size_t bytes, double milliseconds) { return static_cast<double>(bytes) / milliseconds / 1e6; }

struct Row {
  std::string tensor;
  std::string codec;
  std::size_t input_bytes;
  std::size_t payload_bytes;
  double rel_error;
  double encode_ms, decode_ms, copy_ms;

  // Input and payload once each, at the rate of a copy.
  double floor_ms() const { return copy_ms * static_cast<double>(input_bytes + payload_bytes) / (2.0 * static_cast<double>(input_bytes)); }
};

void print_row(const Row& row, bool json) {
  const double encode = gigabytes_per_second(row.input_bytes, row.encode_ms);
  const double decode = gigabytes_per_second(row.input_bytes, row.decode_ms);
  const double copy = gigabytes_per_second(row.input_bytes, row.copy_ms);
  const double bits = 32.0 * static_cast<double>(row.payload_bytes) / static_cast<double>(row.input_bytes);
  if (json) {
    const nlohmann::json line = {{"tensor", row.tensor},       {"codec", row.codec},         {"bits_per_value", bits},
                                 {"rel_error", row.rel_error}, {"encode_GBps", encode},      {"decode_GBps", decode},
                                 {"copy_GBps", copy},          {"encode_ms", row.encode_ms}, {"decode_ms", row.decode_ms},
                                 {"floor_ms", row.floor_ms()}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{:<10} {:<20} {:>7.3f} {:>10.2e} {:>9.0f} {:>9.0f} {:>9.0f} {:>8.2f} {:>8.2f}\n", row.tensor, row.codec, bits,
               row.rel_error, encode, decode, copy, row.encode_ms / row.floor_ms(), row.decode_ms / row.floor_ms());
  }
  std::fflush(stdout);
}

double copy_time(const torch::Tensor& x, int rounds) {
  auto other = torch::empty_like(x);
  return median(device_times(x, rounds, [&] { other.copy_(x); }));
}

// nullopt if the host's codec would have to take the tensor.
std::optional<Row> measure_codec(const NamedTensor& tensor, const std::string& spec, int rounds) {
  const torch::Tensor& x = tensor.x;
  const auto codec = codec_from_flag(spec, {});
  const auto device_codec = codec->device_codec();
  if (device_codec == nullptr || !device_codec->encode(x, {})) return std::nullopt;
  codec::DevicePayload payload;
  auto decoded = torch::empty_like(x);
  Row row{tensor.name, spec, x.nbytes(), 0, 0, 0, 0, copy_time(x, rounds)};
  row.encode_ms = median(device_times(x, rounds, [&] { payload = device_codec->encode(x, {}).value(); }));
  row.decode_ms = median(device_times(x, rounds, [&] {
    if (!device_codec->decode_into(decoded, payload, {})) throw std::runtime_error(spec + " does not decode its own payload");
  }));
  row.payload_bytes = payload.size;
  row.rel_error = codec::relative_error(x, decoded);
  return row;
}

// The reference's method, with LibTorch operators on the device.
Row measure_device_torch_ops(const NamedTensor& tensor, const std::string& spec, int rounds) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& x = tensor.x;
  const bool sort = spec.starts_with("sort");
  TorchOpsEncoded encoded;
  torch::Tensor decoded;
  Row row{tensor.name, "torch-ops " + spec, x.nbytes(), static_cast<std::size_t>(x.numel()), 0, 0, 0, copy_time(x, rounds)};
  row.encode_ms = median(device_times(x, rounds, [&] { encoded = sort ? torch_ops_sort(x, 6, 2) : torch_ops_uniform(x, 8); }));
  row.decode_ms = median(device_times(x, rounds, [&] { decoded = torch_ops_decode(encoded, sort ? 6 : 8, x.sizes()); }));
  row.rel_error = codec::relative_error(x, decoded);
  return row;
}

// Smooth maps with half of the values zero, like outputs of layers, and independent values that no transform helps.
std::vector<NamedTensor> tensors_on(const torch::Device& device, const std::vector<std::int64_t>& shape) {
  const std::int64_t unique = std::min<std::int64_t>(16, shape[0]);
  const auto maps = relu6_maps(unique, shape[1], shape[2], shape[3]).x.to(device);
  const auto repeated = maps.repeat({(shape[0] + unique - 1) / unique, 1, 1, 1}).narrow(0, 0, shape[0]).contiguous();
  torch::manual_seed(1);
  return {{"maps", repeated}, {"gaussian", torch::randn(shape, device)}};
}

}  // namespace

void run_device_bench(const DeviceBenchFlags& flags) {
  if (flags.shape.size() != 4) throw UsageError("--shape takes four dims, as in 256,32,112,112");
  const torch::Device device(flags.device);
  if (!device.is_cuda() || !torch::cuda::is_available()) {
    throw UsageError(fmt::format("--device {}: expected a CUDA device, and a build and a machine that have one", flags.device));
  }
  if (!flags.json) {
    fmt::print("{:<10} {:<20} {:>7} {:>10} {:>9} {:>9} {:>9} {:>8} {:>8}\n", "tensor", "codec", "bits", "rel_error", "enc GB/s", "dec GB/s",
               "copy GB/s", "enc/floor", "dec/floor");
  }
  for (const NamedTensor& tensor : tensors_on(device, flags.shape)) {
    for (const std::string& spec : flags.codecs.empty() ? codecs_with_kernels() : flags.codecs) {
      if (const auto row = measure_codec(tensor, spec, flags.rounds)) {
        print_row(*row, flags.json);
      } else {
        fmt::print(stderr, "{}: {} takes this shape through the host\n", tensor.name, spec);
      }
      if (spec == "sort:6+2" || spec == "uniform:8") print_row(measure_device_torch_ops(tensor, spec, flags.rounds), flags.json);
    }
  }
}

}  // namespace epipe::cli
