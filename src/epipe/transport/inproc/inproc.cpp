#include "epipe/transport/inproc/inproc.h"

#include "epipe/base/queue.h"

namespace epipe::transport {
namespace {

class InprocLink final : public Link {
 public:
  explicit InprocLink(std::size_t capacity) : frames_(capacity) {}

  void send(Bytes frame) override { frames_.push(std::move(frame)); }
  Bytes recv() override { return frames_.pop(); }
  void close() override { frames_.close(); }

 private:
  Queue<Bytes> frames_;
};

}  // namespace

std::unique_ptr<Link> make_inproc_link(std::size_t capacity) { return std::make_unique<InprocLink>(capacity); }

}  // namespace epipe::transport
