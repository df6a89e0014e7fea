#include "epipe/transport/inproc/inproc.h"

#include <fmt/format.h>

#include "epipe/base/queue.h"

namespace epipe::transport {
namespace {

using Way = Queue<Bytes>;

class InprocLink final : public Link {
 public:
  InprocLink(std::shared_ptr<Way> out, std::shared_ptr<Way> in) : out_(std::move(out)), in_(std::move(in)) {}

  void send(Bytes message) override { out_->push(std::move(message)); }
  Bytes recv(Timeout timeout) override {
    if (timeout == kNoTimeout) return in_->pop();
    auto message = in_->pop_within(timeout);
    if (!message) throw TimedOut(fmt::format("nothing arrived within {} ms", timeout.count()));
    return std::move(*message);
  }
  void close() override {
    out_->close();
    in_->close();
  }

 private:
  std::shared_ptr<Way> out_;  // shared with the other end, as in_ is
  std::shared_ptr<Way> in_;
};

}  // namespace

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> make_inproc_link(std::size_t capacity) {
  const auto there = std::make_shared<Way>(capacity);
  const auto back = std::make_shared<Way>(capacity);
  return {std::make_unique<InprocLink>(there, back), std::make_unique<InprocLink>(back, there)};
}

}  // namespace epipe::transport
