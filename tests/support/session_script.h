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
#include "support/repaired_frame.h"
#include "support/session_cases.h"

// What a session is told and sent, as bytes: the inputs of fuzz/session_fuzz.cpp.
//
//   1 byte   the session_cases() that proper commands are of, modulo their number
//   then pieces, each
//   1 byte   what it is, modulo kPieces
//     kProper       1 byte: a command of a proper client, modulo kProperCommands
//     kCommand      2 bytes of length, a command as it arrives
//     kJson         2 bytes of length, a command without tensors: its type and its JSON
//     kFrame        1 byte: the cut; 2 bytes of length, a frame as it arrives
//     kWholeFrame   the same, with lengths and checksum repaired, because no mutation finds a valid CRC by luck
namespace epipe::testing {

enum class Piece : std::uint8_t { kProper, kCommand, kJson, kFrame, kWholeFrame };
inline constexpr std::uint8_t kPieces = 5;
inline constexpr std::size_t kMaxPieces = 64;
inline constexpr std::size_t kCuts = 2;  // with a neighbour of worker 1

struct Script {
  std::size_t of = 0;  // of session_cases()
  std::deque<Bytes> commands;
  std::array<std::deque<Bytes>, kCuts> frames;
};

// A command from its type and its JSON, with the length that the JSON has.
inline Bytes with_length(ByteView typed_json) {
  if (typed_json.empty()) return {};
  Bytes bytes(1, typed_json[0]);
  append(bytes, static_cast<std::uint32_t>(typed_json.size() - 1));
  bytes.insert(bytes.end(), typed_json.begin() + 1, typed_json.end());
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
  if (bytes.empty()) bytes = to_bytes(command_of(command, session_cases()[of]));
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

// A data channel that carries these frames, and when they are over is silent for as long as `timeout`, and then lost.
class ScriptedChannel final : public transport::Link {
 public:
  ScriptedChannel(ScriptedFrames& frames, transport::Timeout timeout) : frames_(frames), timeout_(timeout) {}
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
  session::ParticipantConfig config;
  config.checkpoints = checkpoints;
  config.log = [](const std::string&) {};  // as a server has one: the client is told no path
  config.timeout = timeout;
  config.open_channel = [&](const session::ChannelRequest& request) {
    return std::make_unique<ScriptedChannel>(frames[static_cast<std::size_t>(request.cut) % kCuts], timeout);
  };
  make_trainers(config, [&](const nlohmann::json& plan, int worker) {
    if (!session_cases()[script.of].cluster) serve::admit(plan, worker, {}, registry().models);
    if (admit) admit(plan);
  });
  session::WorkerParticipant participant(std::move(config));
  ScriptedClient client(script.commands);
  try {
    handle_commands(client, participant, transport::kNoTimeout);
  } catch (const transport::ConnectionLost&) {
    // All is said.
  }
  return client.answers();
}

}  // namespace epipe::testing
