// epipe::Codec: tensors to frames and back.
#include <iterator>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "epipe/codec/frame_codec.h"
#include "epipe/epipe.h"

namespace epipe {

class Codec::Impl {
 public:
  // The memory of a released frame, for the next one: allocating pages takes most of the time of a large frame.
  class SpareFrame {
   public:
    Bytes take() {
      const std::lock_guard lock(mutex_);
      Bytes frame = std::exchange(spare_, {});
      frame.clear();
      return frame;
    }
    void give_back(Bytes&& frame) {
      const std::lock_guard lock(mutex_);
      if (frame.capacity() > spare_.capacity()) spare_ = std::move(frame);
    }

   private:
    std::mutex mutex_;
    Bytes spare_;
  };

  Impl(const std::string& spec, int threads) : pool_(threads) {
    auto made = codec::make_codec(spec, {&pool_});
    if (!made) throw std::invalid_argument(made.error().text());
    codec_ = std::move(made).value();
  }
  codec::Codec& codec() { return *codec_; }
  Bytes& frame() { return frame_; }
  const std::shared_ptr<SpareFrame>& spare() { return spare_; }
  void encode(const torch::Tensor& x, bool frozen, Bytes& frame) {
    const auto done = codec::encode_frame(*codec_, x, {}, {frozen}, &pool_, frame);
    if (!done) throw std::invalid_argument(done.error().text());
  }

 private:
  ThreadPool pool_;
  Bytes frame_;                                                         // the last one
  std::shared_ptr<SpareFrame> spare_ = std::make_shared<SpareFrame>();  // frames that outlive the codec own it, too
  std::unique_ptr<codec::Codec> codec_;                                 // uses the pool
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
  impl_->encode(x, frozen, frame);
  return frame;
}

Codec::HeldFrame Codec::encode_held(const torch::Tensor& x, bool frozen) {
  const auto hand_back = [spare = impl_->spare()](Bytes* frame) {
    spare->give_back(std::move(*frame));
    delete frame;
  };
  const std::shared_ptr<Bytes> frame(new Bytes(impl_->spare()->take()), hand_back);
  impl_->encode(x, frozen, *frame);
  return {frame, *frame};
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
