#include "epipe/codec/channel_means.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/parallel.h"

namespace epipe::codec {
namespace {

constexpr std::size_t kMeansHead = 4;
constexpr std::size_t kMeansAlign = 16;   // of the payload behind the means
constexpr std::size_t kSmallestMap = 64;  // values: the sums of maps take little memory beside the tensor

std::size_t map_size(const wire::TensorSpec& tensor) { return static_cast<std::size_t>(tensor.dims[2] * tensor.dims[3]); }
std::size_t map_count(const wire::TensorSpec& tensor) { return static_cast<std::size_t>(tensor.dims[0] * tensor.dims[1]); }

double sum_of(std::span<const float> map) {
  std::array<float, kMapSums> sums{};
  std::size_t i = 0;
  for (; i + kMapSums <= map.size(); i += kMapSums) {
    for (std::size_t j = 0; j < kMapSums; ++j) sums[j] += map[i + j];
  }
  for (std::size_t j = 0; i + j < map.size(); ++j) sums[j] += map[i + j];
  double sum = 0;
  for (const float part : sums) sum += static_cast<double>(part);
  return sum;
}

// The sum over samples, one after the other.
double channel_sum(const wire::TensorSpec& tensor, std::span<const double> sums, std::size_t channel) {
  double sum = 0;
  for (std::size_t m = channel; m < sums.size(); m += static_cast<std::size_t>(tensor.dims[1])) sum += sums[m];
  return sum;
}

double values_per_channel(const wire::TensorSpec& tensor) {
  return static_cast<double>(tensor.dims[0]) * static_cast<double>(map_size(tensor));
}

}  // namespace

bool has_channel_means(const wire::TensorSpec& tensor) {
  return tensor.dims.size() == 4 && tensor.values() > 0 && tensor.dims[1] <= std::numeric_limits<std::uint16_t>::max() &&
         map_size(tensor) >= kSmallestMap;
}

std::vector<double> map_sums(const wire::TensorSpec& tensor, std::span<const float> x, ThreadPool* pool) {
  std::vector<double> sums(map_count(tensor));
  share_items(pool, x.size(), sums.size(), [&](std::size_t, const auto& next) {
    for (std::size_t m = next(); m < sums.size(); m = next()) sums[m] = sum_of(x.subspan(m * map_size(tensor), map_size(tensor)));
  });
  return sums;
}

std::vector<float> means_of(const wire::TensorSpec& tensor, std::span<const double> sums) {
  std::vector<float> means;
  for (std::size_t c = 0; c < tensor.dims[1]; ++c) {
    means.push_back(static_cast<float>(channel_sum(tensor, sums, c) / values_per_channel(tensor)));
  }
  return means;
}

std::vector<float> shifts_to(const wire::TensorSpec& tensor, std::span<const float> wanted, std::span<const double> sums) {
  std::vector<float> shifts;
  for (std::size_t c = 0; c < wanted.size(); ++c) {
    const auto shift = static_cast<float>(static_cast<double>(wanted[c]) - channel_sum(tensor, sums, c) / values_per_channel(tensor));
    shifts.push_back(std::isfinite(shift) ? shift : 0.0F);
  }
  return shifts;
}

void add_to_channels(const wire::TensorSpec& tensor, std::span<const float> shifts, ThreadPool* pool, std::span<float> x) {
  share_items(pool, x.size(), map_count(tensor), [&](std::size_t, const auto& next) {
    for (std::size_t m = next(); m < map_count(tensor); m = next()) {
      const float shift = shifts[m % shifts.size()];
      for (float& v : x.subspan(m * map_size(tensor), map_size(tensor))) v += shift;
    }
  });
}

std::size_t means_bytes(std::size_t channels) {
  return (kMeansHead + sizeof(float) * channels + kMeansAlign - 1) / kMeansAlign * kMeansAlign;
}

void write_means(std::span<const float> means, Bytes& out) {
  const std::size_t start = out.size();
  append(out, PayloadKind::kWithMeans);
  append(out, std::uint8_t{0});
  append(out, static_cast<std::uint16_t>(means.size()));
  for (const float mean : means) append(out, mean);
  while ((out.size() - start) % kMeansAlign != 0) append(out, std::uint8_t{0});
}

Result<std::vector<float>> read_means(const wire::TensorSpec& tensor, ByteView first) {
  const auto bad = [](std::string message) { return Error{ErrorCode::kBadPayload, std::move(message)}; };
  if (!has_channel_means(tensor)) return bad("channel means, but this shape has no channels");
  const auto channels = static_cast<std::size_t>(tensor.dims[1]);
  if (first.size() < means_bytes(channels)) return bad("the payload ends within the means of its channels");
  if (load<std::uint16_t>(first, 2) != channels) {
    return bad(fmt::format("expected the means of {} channels, got those of {}", channels, load<std::uint16_t>(first, 2)));
  }
  const std::size_t end = kMeansHead + sizeof(float) * channels;
  if (first[1] != std::byte{0} || !all_zeros(first.subspan(end, means_bytes(channels) - end))) {
    return bad("bytes beside the channel means must be 0");
  }
  std::vector<float> means;
  constexpr float kMost = 0x1p100F;  // so that values stay finite
  for (std::size_t c = 0; c < channels; ++c) {
    means.push_back(load<float>(first, kMeansHead + sizeof(float) * c));
    if (!(std::abs(means.back()) <= kMost)) return bad("a channel's mean is not a number below 2^100");
  }
  return means;
}

}  // namespace epipe::codec
