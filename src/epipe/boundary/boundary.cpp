#include "epipe/boundary/boundary.h"

#include <fmt/format.h>

#include <stdexcept>

namespace epipe::boundary {

std::string describe(const BoundaryConfig& config, std::uint64_t step, std::uint32_t micro_batch) {
  return fmt::format("cut {} {}, step {}, micro-batch {}", config.cut,
                     config.direction == wire::Direction::kForward ? "forward" : "backward", step, micro_batch);
}

std::unique_ptr<codec::Codec> make_encoder(const BoundaryConfig& config, ThreadPool& pool) {
  auto made = config.codec_factory(config.codec, {&pool});
  if (!made) throw std::invalid_argument(made.error().text());
  return std::move(made).value();
}

codec::FrameDecoder make_decoder(const BoundaryConfig& config, ThreadPool& pool) {
  codec::CodecOptions options{&pool};
  options.device = config.device;
  auto made = codec::FrameDecoder::make(config.codec, options, config.codec_factory);
  if (!made) throw std::invalid_argument(made.error().text());
  return std::move(made).value();
}

int track_of(const BoundaryConfig& config, bool receiver) {
  return 100 + 4 * config.cut + 2 * static_cast<int>(config.direction) + (receiver ? 1 : 0);
}

}  // namespace epipe::boundary
