#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <map>
#include <string>

#include "support/codecs.h"
#include "support/session_script.h"

// The seeds of session_fuzz. Those called proper-* are carried out to their end; tests/session/corpus_test.cpp looks after that.
namespace epipe::fuzz {

using testing::Piece;
using testing::Proper;
using testing::SessionCase;

class Seed {
 public:
  explicit Seed(std::size_t of) : of_(testing::session_cases()[of]) { append(bytes_, static_cast<std::uint8_t>(of)); }

  Seed& say(Proper command) {
    append(bytes_, Piece::kProper);
    append(bytes_, command);
    return *this;
  }
  // The same as bytes, for mutations to find its fields.
  Seed& spell(const session::Command& command) {
    const Bytes all = to_bytes(command);
    const std::size_t front = 1 + sizeof(std::uint32_t);
    const bool plain = all.size() == front + load<std::uint32_t>(all, 1);
    append(bytes_, plain ? Piece::kJson : Piece::kCommand);
    if (!plain) return add(all);
    Bytes typed_json(1, all[0]);
    append_bytes(typed_json, ByteView(all).subspan(front));
    return add(typed_json);
  }
  Seed& spell(Proper command) { return spell(command_of(command, of_)); }
  // What the neighbours send in a step.
  Seed& frames(std::uint64_t step, bool training) {
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(of_.plan.chunks); ++i) {
      frame({step, i, 0}, of_.plan.codecs[0].forward);
      if (training && of_.plan.cuts.size() > 1) frame({step, i, 1, 0, 1, wire::Direction::kBackward}, of_.plan.codecs[1].backward);
    }
    return *this;
  }
  Seed& frame(const codec::FrameTag& tag, const std::string& codec) {
    std::vector<std::int64_t> shape = {static_cast<std::int64_t>(of_.samples.size()) / of_.plan.chunks};
    shape.insert(shape.end(), of_.shape.begin(), of_.shape.end());
    const auto type = of_.plan.precision == "bf16" ? torch::kBFloat16 : torch::kFloat32;
    Bytes bytes;
    const auto good = codec::encode_frame(*testing::codec_of(codec), torch::randn(shape).to(type), tag, {}, nullptr, bytes);
    if (!good) throw std::runtime_error(good.error().text());
    append(bytes_, Piece::kWholeFrame);
    append(bytes_, static_cast<std::uint8_t>(tag.cut));
    return add(bytes);
  }
  Bytes bytes() const { return bytes_; }

 private:
  Seed& add(ByteView piece) {
    append(bytes_, static_cast<std::uint16_t>(piece.size()));
    bytes_.insert(bytes_.end(), piece.begin(), piece.end());
    return *this;
  }

  const SessionCase& of_;
  Bytes bytes_;
};

// Everything that a proper client says in a run of two steps.
inline Bytes whole_run(std::size_t of) {
  Seed seed(of);
  seed.say(Proper::kConfigure).say(Proper::kLoad).say(Proper::kOpenChannels);
  seed.frames(0, true).say(Proper::kStep0).say(Proper::kCommit0).say(Proper::kCommit0);
  seed.frames(1, true).say(Proper::kStep1).say(Proper::kCommit1);
  seed.frames(2, false).say(Proper::kEvaluate).say(Proper::kSave).say(Proper::kWeights).say(Proper::kRestore2);
  return seed.say(Proper::kClock).say(Proper::kTimeline).say(Proper::kEnd).bytes();
}

// One step in words.
inline Bytes spelled_run(std::size_t of) {
  Seed seed(of);
  seed.spell(Proper::kConfigure).say(Proper::kLoad).spell(Proper::kOpenChannels);
  seed.frames(0, true).spell(Proper::kStep0).spell(testing::commit_command(0, /*skip=*/true));
  return seed.spell(Proper::kSave).spell(session::RestoreCommand{1}).spell(Proper::kLeave).bytes();
}

// A remote stage: a step made of micro-batches one at a time, then an evaluation. For a session between two cuts with its client.
inline bool is_remote_stage(const SessionCase& of) {
  return of.plan.place == std::vector<int>{0, 1, 0} && of.plan.data.kind != data::DataSpec::Kind::kText;
}

inline Bytes remote_stage(std::size_t of) {
  const SessionCase& run = testing::session_cases()[of];
  const auto chunks = static_cast<std::uint32_t>(run.plan.chunks);
  Seed seed(of);
  seed.say(Proper::kConfigure).say(Proper::kLoad).say(Proper::kOpenChannels);
  seed.frames(0, true).frame({1, chunks, 0}, run.plan.codecs[0].forward);
  for (std::uint32_t i = 0; i < chunks; ++i) seed.spell(session::ForwardCommand{0, i, i == 0, true, {run.samples[i]}});
  for (std::uint32_t i = 0; i < chunks; ++i) seed.spell(session::BackwardCommand{0, i});
  seed.say(Proper::kCommit0).spell(session::ForwardCommand{1, chunks, false, false, {run.samples[0]}});
  return seed.say(Proper::kWeights).say(Proper::kEnd).bytes();
}

// Micro-batches that nobody is waiting for: backward without forward, of steps that are not under way, without channels.
inline Bytes wrong_micro_batches(std::size_t of) {
  Seed seed(of);
  seed.say(Proper::kConfigure).say(Proper::kLoad).say(Proper::kOpenChannels);
  seed.spell(session::BackwardCommand{0, 0}).spell(session::ForwardCommand{0, 0, true, true, {1, 2, 3}}).say(Proper::kOpenChannels);
  seed.spell(session::ForwardCommand{9, 1U << 31U, true, true, {-1}}).say(Proper::kOpenChannels);
  return seed.spell(session::BackwardCommand{1, 7}).say(Proper::kCommit0).say(Proper::kLeave).bytes();
}

// What is asked between two steps: an audit, and how fast the link is. Then a step as if neither had been.
inline bool is_audited(const SessionCase& of) { return is_remote_stage(of) && of.plan.codecs[0].forward == "ec:4" && of.plan.delay == 0; }

inline Bytes audited_run(std::size_t of) {
  Seed seed(of);
  seed.say(Proper::kConfigure).say(Proper::kLoad).say(Proper::kOpenChannels);
  seed.frames(0, true).spell(testing::audit_command(testing::session_cases()[of]));
  seed.spell(session::LinkProbeCommand{session::probe_bytes(64), 32});
  return seed.frames(0, true).say(Proper::kStep0).say(Proper::kCommit0).say(Proper::kEnd).bytes();
}

// Two steps that overlap, with the backwards that a server runs early.
inline Bytes late_run(std::size_t of) {
  const SessionCase& late = testing::session_cases()[of];
  Seed seed(of);
  seed.say(Proper::kConfigure).say(Proper::kLoad).say(Proper::kOpenChannels).frames(0, true).frames(1, true);
  seed.spell(testing::overlapped_command(late, 0, true)).spell(session::EarlyBackwardsCommand{});
  seed.spell(testing::overlapped_command(late, 1, true)).spell(session::EarlyBackwardsCommand{}).say(Proper::kCommit0);
  seed.spell(testing::overlapped_command(late, 1, false)).say(Proper::kCommit1);
  return seed.say(Proper::kSave).say(Proper::kWeights).say(Proper::kEnd).bytes();
}

// Steps that do not overlap in a run whose steps do, and the other way round.
inline Bytes wrong_steps(std::size_t of) {
  const SessionCase& run = testing::session_cases()[of];
  Seed seed(of);
  seed.say(Proper::kConfigure).say(Proper::kLoad).say(Proper::kOpenChannels).frames(0, true).spell(session::EarlyBackwardsCommand{});
  if (run.plan.delay > 0) return seed.say(Proper::kStep0).spell(testing::audit_command(run)).say(Proper::kLeave).bytes();
  return seed.spell(testing::overlapped_command(run, 0, true)).spell(session::BackwardCommand{0, 0}).say(Proper::kLeave).bytes();
}

inline Bytes lost_link(std::size_t of) {
  Seed seed(of);
  seed.say(Proper::kConfigure).say(Proper::kLoad).say(Proper::kOpenChannels).say(Proper::kStep0);
  seed.frames(0, true).say(Proper::kOpenChannels).say(Proper::kStep0).say(Proper::kConfigure).say(Proper::kCommit0);
  return seed.say(Proper::kLeave).bytes();
}

inline Bytes wrong_weights() {
  Seed seed(0);
  seed.say(Proper::kConfigure);
  seed.spell(session::LoadCommand{1, true, {{"layers.1.linear.weight", torch::zeros({7})}, {"layers.1.linear.bias", torch::ones({128})}}});
  return seed.say(Proper::kOpenChannels).bytes();
}

inline std::map<std::string, Bytes> session_seeds() {
  std::map<std::string, Bytes> seeds = {{"wrong-weights", wrong_weights()}};
  for (std::size_t of = 0; of < testing::session_cases().size(); ++of) {
    seeds[fmt::format("wrong-steps-{}", of)] = wrong_steps(of);
    if (testing::session_cases()[of].plan.delay > 0) {
      seeds[fmt::format("proper-late-{}", of)] = late_run(of);
      continue;
    }
    seeds[fmt::format("proper-run-{}", of)] = whole_run(of);
    seeds[fmt::format("proper-words-{}", of)] = spelled_run(of);
    seeds[fmt::format("lost-link-{}", of)] = lost_link(of);
    if (!is_remote_stage(testing::session_cases()[of])) continue;
    seeds[fmt::format("proper-stage-{}", of)] = remote_stage(of);
    seeds[fmt::format("wrong-stage-{}", of)] = wrong_micro_batches(of);
    if (is_audited(testing::session_cases()[of])) seeds[fmt::format("proper-audit-{}", of)] = audited_run(of);
  }
  return seeds;
}

}  // namespace epipe::fuzz
