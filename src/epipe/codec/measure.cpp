#include "epipe/codec/measure.h"

#include <algorithm>
#include <limits>

#include "epipe/base/clock.h"
#include "epipe/base/median.h"
#include "epipe/codec/frame_codec.h"
#include "epipe/codec/span.h"

namespace epipe::codec {
namespace {

template <typename Work>
double seconds_of(Work&& work) {
  const Stopwatch watch;
  work();
  return watch.seconds();
}

}  // namespace

double relative_error(const torch::Tensor& x, const torch::Tensor& decoded) {
  const auto a = x.to(torch::kFloat64);
  const auto error = (a - decoded.to(torch::kFloat64)).square().sum().item<double>();
  const auto energy = a.square().sum().item<double>();
  if (error == 0) return 0;
  return energy > 0 ? error / energy : std::numeric_limits<double>::infinity();
}

Result<Measurement> measure(std::string_view spec, const torch::Tensor& tensor, const CodecOptions& options, const MeasureOptions& how) {
  auto made = make_codec(spec, options);
  if (!made) return made.error();
  Codec& codec = *made.value();
  const auto x = contiguous_float(tensor);
  const wire::Limits unlimited{~std::uint64_t{0} >> 1, ~std::uint64_t{0} >> 1};

  Bytes frame;
  EPIPE_TRY(encode_frame(codec, x, {}, {}, options.pool, frame));
  auto decoded = decode_frame(frame, unlimited, options);
  if (!decoded) return decoded.error();
  Measurement m;
  m.values = static_cast<std::size_t>(x.numel());
  m.wire_bytes = frame.size();
  m.bits_per_value = m.values == 0 ? 0 : 8.0 * static_cast<double>(frame.size()) / static_cast<double>(m.values);
  m.rel_error = relative_error(x, decoded.value());
  if (m.values == 0) return m;

  const auto from = values_of(x);
  auto copy = torch::zeros_like(x);
  const auto to = mutable_values_of(copy);
  auto y = decoded.value();
  std::vector<double> encode;
  std::vector<double> decode;
  std::vector<double> plain;
  constexpr std::size_t kMaxRounds = 1001;
  const Stopwatch total;
  while (encode.empty() || (encode.size() < kMaxRounds && total.seconds() < how.seconds) ||
         (encode.size() < 3 && total.seconds() < 2 * how.seconds)) {
    bool ok = true;
    frame.clear();
    encode.push_back(seconds_of([&] { ok = encode_frame(codec, x, {}, {}, options.pool, frame).ok(); }));
    decode.push_back(seconds_of([&] { ok = ok && decode_frame(frame, unlimited, options, y).ok(); }));
    TORCH_CHECK(ok, "a tensor that was encoded once must encode and decode again");
    plain.push_back(seconds_of([&] {
      for_parts(options.pool, from.size(), 64, [&](std::size_t, std::size_t begin, std::size_t end) {
        std::memcpy(to.data() + begin, from.data() + begin, (end - begin) * sizeof(float));
      });
    }));
  }
  const double megabytes = static_cast<double>(m.values * sizeof(float)) / 1e6;
  m.encode_MBps = megabytes / median(encode);
  m.decode_MBps = megabytes / median(decode);
  m.memcpy_MBps = megabytes / median(plain);
  return m;
}

}  // namespace epipe::codec
