// epipe::Codec: tensors to frames and back.
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "epipe/codec/frame_codec.h"
#include "epipe/epipe.h"

namespace epipe {

class Codec::Impl {
 public:
  Impl(const std::string& spec, int threads) : pool_(threads) {
    auto made = codec::make_codec(spec, {&pool_});
    if (!made) throw std::invalid_argument(made.error().text());
    codec_ = std::move(made).value();
  }
  codec::Codec& codec() { return *codec_; }
  ThreadPool& pool() { return pool_; }
  Bytes& frame() { return frame_; }

 private:
  ThreadPool pool_;
  Bytes frame_;                          // the last one
  std::unique_ptr<codec::Codec> codec_;  // uses the pool
};

Codec::Codec(const std::string& spec, int threads) : impl_(std::make_unique<Impl>(spec, threads)) {}
Codec::~Codec() = default;
Codec::Codec(Codec&&) noexcept = default;
Codec& Codec::operator=(Codec&&) noexcept = default;

std::string Codec::spec() const { return impl_->codec().spec(); }

std::vector<std::byte> Codec::encode(const torch::Tensor& x, bool frozen) {
  const auto frame = encode_view(x, frozen);
  return {frame.begin(), frame.end()};
}

std::span<const std::byte> Codec::encode_view(const torch::Tensor& x, bool frozen) {
  Bytes& frame = impl_->frame();
  frame.clear();
  if (const auto done = codec::encode_frame(impl_->codec(), x, {}, {frozen}, &impl_->pool(), frame); !done) {
    throw std::invalid_argument(done.error().text());
  }
  return frame;
}

std::map<std::string, torch::Tensor> Codec::state() const { return impl_->codec().state(); }
void Codec::set_state(const std::map<std::string, torch::Tensor>& state) { impl_->codec().set_state(state); }

std::vector<std::string> codecs() {
  std::istringstream words{std::string(codec::known_codecs())};
  return {std::istream_iterator<std::string>(words), {}};
}

torch::Tensor decode(std::span<const std::byte> frame, std::uint64_t max_bytes, const torch::Tensor& reuse, torch::Device device) {
  codec::CodecOptions options;
  options.device = device;
  auto x = codec::decode_frame(frame, {max_bytes, max_bytes / sizeof(float)}, options, reuse);
  if (!x) throw std::invalid_argument(x.error().text());
  return std::move(x).value();
}

}  // namespace epipe
