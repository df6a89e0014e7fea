#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "epipe/base/queue.h"
#include "epipe/serve/admission.h"
#include "epipe/train/participant.h"
#include "epipe/wire/crc32c.h"
#include "epipe/wire/frame.h"
#include "support/session_cases.h"

// What a session is told and sent, as bytes: the inputs of fuzz/session_fuzz.cpp.
//
//   1 byte   the session_cases() that proper commands are of, modulo their number
//   then pieces, each
//   1 byte   what it is, modulo kPieces
//     kProper       1 byte: a command of a proper client, modulo kProperCommands
//     kCommand      2 bytes of length, a command as it arrives
//     kJson         2 bytes of length, the JSON of a command without tensors
//     kFrame        1 byte: the cut; 2 bytes of length, a frame as it arrives
//     kWholeFrame   the same, with lengths and checksum repaired, because no mutation finds a valid CRC by luck
namespace epipe::testing {

enum class Piece : std::uint8_t { kProper, kCommand, kJson, kFrame, kWholeFrame };
inline constexpr std::uint8_t kPieces = 5;
inline constexpr std::size_t kMaxPieces = 64;
inline constexpr std::size_t kCuts = 2;  // with a neighbour of worker 1

// The frame with the lengths and the checksum of its bytes, where it is long enough to have them.
inline Bytes repaired(ByteView frame) {
  Bytes out(frame.begin(), frame.end());
  const MutableBytes bytes(out);
  if (bytes.size() < wire::kFixedBytes) return out;
  const auto header_bytes = load<std::uint32_t>(bytes, 16);
  if (header_bytes > bytes.size()) return out;
  store(bytes, 8, static_cast<std::uint64_t>(bytes.size() - header_bytes));
  store(bytes, 20, std::uint32_t{0});
  store(bytes, 20, wire::crc32c(bytes));
  return out;
}

struct Script {
  std::size_t of = 0;  // of session_cases()
  std::deque<Bytes> commands;
  std::array<std::deque<Bytes>, kCuts> frames;
};

inline Bytes with_length(ByteView json) {
  Bytes bytes;
  append(bytes, static_cast<std::uint32_t>(json.size()));
  bytes.insert(bytes.end(), json.begin(), json.end());
  return bytes;
}

inline ByteView take_piece(ByteReader& reader) {
  const std::size_t length = reader.take<std::uint16_t>().value_or(0);
  return *reader.take_bytes(std::min(length, reader.rest().size()));
}

// Made once: weights are long.
inline const Bytes& proper_bytes(std::size_t of, Proper command) {
  static std::map<std::pair<std::size_t, Proper>, Bytes> made;
  auto& bytes = made[{of, command}];
  if (bytes.empty()) bytes = to_bytes(message_of(command, session_cases()[of]));
  return bytes;
}

// Any bytes are a script.
inline Script read_script(ByteView input) {
  Script script;
  ByteReader reader(input);
  script.of = reader.take<std::uint8_t>().value_or(0) % session_cases().size();
  for (std::size_t piece = 0; piece < kMaxPieces && !reader.rest().empty(); ++piece) {
    const auto kind = static_cast<Piece>(*reader.take<std::uint8_t>() % kPieces);
    if (kind == Piece::kProper) {
      const auto command = static_cast<Proper>(reader.take<std::uint8_t>().value_or(0) % kProperCommands);
      script.commands.push_back(proper_bytes(script.of, command));
    } else if (kind == Piece::kCommand || kind == Piece::kJson) {
      const ByteView bytes = take_piece(reader);
      script.commands.push_back(kind == Piece::kJson ? with_length(bytes) : Bytes(bytes.begin(), bytes.end()));
    } else {
      auto& frames = script.frames[reader.take<std::uint8_t>().value_or(0) % kCuts];
      const ByteView bytes = take_piece(reader);
      frames.push_back(kind == Piece::kWholeFrame ? repaired(bytes) : Bytes(bytes.begin(), bytes.end()));
    }
  }
  return script;
}

// The other end of the script: commands as long as there are, then the client is lost.
class ScriptedClient final : public transport::Link {
 public:
  explicit ScriptedClient(std::deque<Bytes> commands) : commands_(std::move(commands)) {}
  void send(Bytes answer) override { answers_.push_back(std::move(answer)); }
  Bytes recv(transport::Timeout) override {
    if (commands_.empty()) throw transport::ConnectionLost("no more commands");
    Bytes command = std::move(commands_.front());
    commands_.pop_front();
    return command;
  }
  void close() override {}
  const std::vector<Bytes>& answers() const { return answers_; }

 private:
  std::deque<Bytes> commands_;
  std::vector<Bytes> answers_;
};

// The frames that arrive at a cut.
class ScriptedFrames {
 public:
  explicit ScriptedFrames(std::deque<Bytes> frames) : frames_(std::move(frames)) {}
  std::optional<Bytes> next() {
    const std::lock_guard lock(mutex_);
    if (frames_.empty()) return std::nullopt;
    Bytes frame = std::move(frames_.front());
    frames_.pop_front();
    return frame;
  }

 private:
  std::mutex mutex_;
  std::deque<Bytes> frames_;
};

// A way that carries these frames, and when they are over is silent for as long as `timeout`, and then lost.
class ScriptedWay final : public transport::Link {
 public:
  ScriptedWay(ScriptedFrames& frames, transport::Timeout timeout) : frames_(frames), timeout_(timeout) {}
  void send(Bytes) override {}
  Bytes recv(transport::Timeout) override {
    std::unique_lock lock(mutex_);
    if (closed_) throw Closed();
    if (auto frame = frames_.next()) return std::move(*frame);
    changed_.wait_for(lock, timeout_, [this] { return closed_; });
    if (closed_) throw Closed();
    throw transport::ConnectionLost("no more frames");
  }
  void close() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  ScriptedFrames& frames_;
  transport::Timeout timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
};

// Plays the script to a session; its answers, in order. `admit` is asked about every plan, after what a server itself says.
inline std::vector<Bytes> play(const Script& script, const std::string& checkpoints, transport::Timeout timeout,
                               const std::function<void(const nlohmann::json& plan)>& admit = {}) {
  std::array<ScriptedFrames, kCuts> frames{ScriptedFrames(script.frames[0]), ScriptedFrames(script.frames[1])};
  train::ParticipantConfig config;
  config.registry = &registry();
  config.checkpoints = checkpoints;
  config.log = [](const std::string&) {};  // as a server has one: the client is told no path
  config.timeout = timeout;
  config.open_channel = [&](const train::ChannelRequest& request) {
    return std::make_unique<ScriptedWay>(frames[static_cast<std::size_t>(request.cut) % kCuts], timeout);
  };
  config.admit = [&](const nlohmann::json& plan, int worker) {
    if (!session_cases()[script.of].cluster) serve::admit(plan, worker, {}, registry().models);
    if (admit) admit(plan);
  };
  train::WorkerParticipant participant(std::move(config));
  ScriptedClient client(script.commands);
  try {
    handle_commands(client, participant, transport::kNoTimeout);
  } catch (const transport::ConnectionLost&) {
    // All is said.
  }
  return client.answers();
}

}  // namespace epipe::testing
