// A session that is told anything in any order, and whose ways carry anything: every command gets an answer, nothing crashes or hangs.
//
// The input is a list of pieces, 4 bytes of length each. A piece whose length is even is a command; an odd one is a frame that arrives on
// a way. Commands are tried as they are, so mutations of the corpus keep their JSON.
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>

#include "epipe/base/queue.h"
#include "epipe/train/follower.h"

namespace {

using namespace epipe;

constexpr std::size_t kMaxPieces = 24;

// Frames that arrive, whoever asks first; then the peer is lost.
class Frames {
 public:
  void add(ByteView frame) { frames_.emplace_back(frame.begin(), frame.end()); }
  Bytes next() {
    const std::lock_guard lock(mutex_);
    if (frames_.empty()) throw transport::Lost("no more frames");
    Bytes frame = std::move(frames_.front());
    frames_.pop_front();
    return frame;
  }

 private:
  std::mutex mutex_;
  std::deque<Bytes> frames_;
};

class FuzzedLink final : public transport::Link {
 public:
  explicit FuzzedLink(Frames& frames) : frames_(frames) {}
  void send(Bytes) override {}
  Bytes recv(transport::Patience) override { return frames_.next(); }
  void close() override {}

 private:
  Frames& frames_;
};

void run(ByteView input) {
  Frames frames;
  std::deque<ByteView> commands;
  ByteReader reader(input);
  for (std::size_t piece = 0; piece < kMaxPieces; ++piece) {
    const auto length = reader.take<std::uint32_t>();
    if (!length) break;
    const auto bytes = reader.take_bytes(std::min<std::size_t>(*length, reader.rest().size()));
    if (*length % 2 == 0) {
      commands.push_back(*bytes);
    } else {
      frames.add(*bytes);
    }
  }
  train::FollowerConfig config;
  config.checkpoints = "/nonexistent/epipe";  // nothing is written
  config.way = [&](const train::WayRequest&) { return std::make_unique<FuzzedLink>(frames); };
  config.patience = std::chrono::milliseconds(200);
  config.admit = [](const nlohmann::json& plan, int) {
    if (plan.at("model") != "mlp") throw std::invalid_argument("only small models here");
    for (const auto& extent : plan.at("data").at("shape")) {
      if (extent > 64) throw std::invalid_argument("only small data here");
    }
    if (plan.at("data").at("shape").size() > 3 || plan.at("data").at("classes") > 64) throw std::invalid_argument("only small data here");
    if (plan.at("threads") != 1) throw std::invalid_argument("only one thread here");
  };
  train::Follower follower(std::move(config));
  for (const ByteView command : commands) {
    const auto message = train::read_message(command);
    if (!message) continue;
    const auto answer = follower.obey(message.value());
    if (answer.kind.empty()) std::abort();
    if (answer.kind == "failed" && answer.fields.at("error").get<std::string>().empty()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
