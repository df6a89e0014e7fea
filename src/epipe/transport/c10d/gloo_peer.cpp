#include "epipe/transport/c10d/gloo_peer.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/transport/c10d/gloo_link.h"

namespace epipe::transport {
namespace {

// A wait of gloo that runs out of time closes all connections of the group, so it never does; abort() ends it.
constexpr std::chrono::milliseconds kVeryLong = std::chrono::hours(24 * 365);
constexpr int kNoticeTag = 0;

// The notice that a side sends when it closes a link: u32 channel, u64 messages sent, u64 messages received.
constexpr std::size_t kNoticeBytes = 20;

int tag_of(std::uint32_t channel) { return static_cast<int>(channel) + 1; }

std::vector<at::Tensor> tensors(MutableBytes bytes) {
  return {at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte)};
}

}  // namespace

std::string gone_reason(int rank, const std::string& why) {
  return fmt::format("rank {} is gone: {}", rank, why.substr(0, why.find('\n')));
}

GlooPeer::GlooPeer(c10d::ProcessGroupGloo& group, int rank, int known_as) : group_(group), rank_(rank), known_as_(known_as) {
  thread_ = std::thread([this] { listen(); });
}

GlooPeer::~GlooPeer() { stop(); }

void GlooPeer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (notice_.work) notice_.work->abort();
  }
  if (thread_.joinable()) thread_.join();
}

c10::intrusive_ptr<c10d::Work> GlooPeer::start_send(MutableBytes bytes, std::uint32_t channel) {
  auto list = tensors(bytes);
  return group_.send(list, rank_, tag_of(channel));
}

c10::intrusive_ptr<c10d::Work> GlooPeer::start_recv(MutableBytes bytes, std::uint32_t channel) {
  auto list = tensors(bytes);
  return group_.recv(list, rank_, tag_of(channel));
}

bool GlooPeer::wait(c10d::Work& work) { return work.wait(kVeryLong); }

void GlooPeer::enter(std::uint32_t channel, GlooLink& link) {
  const std::lock_guard lock(mutex_);
  if (!links_.emplace(channel, &link).second) {
    throw std::invalid_argument(fmt::format("channel {} to rank {} was used before; take another", channel, known_as_));
  }
  if (!lost_.empty()) link.lose(lost_, {});
  if (const auto found = closed_.find(channel); found != closed_.end()) link.lose(closed_reason(known_as_), found->second);
}

void GlooPeer::leave(std::uint32_t channel) {
  const std::lock_guard lock(mutex_);
  links_[channel] = nullptr;
}

void GlooPeer::tell_closed(std::uint32_t channel, const ClosingNotice& notice) {
  Transfer transfer;
  append(transfer.memory, channel);
  append(transfer.memory, notice.sent);
  append(transfer.memory, notice.received);
  auto list = tensors(transfer.memory);
  try {
    transfer.work = group_.send(list, rank_, kNoticeTag);
    retire(std::move(transfer));
  } catch (const std::exception&) {
    // The peer is gone and needs no notice.
  }
}

void GlooPeer::retire(Transfer transfer) {
  const std::lock_guard lock(mutex_);
  retired_.push_back(std::move(transfer));
}

std::string GlooPeer::lost() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

// The peer's thread.
void GlooPeer::listen() {
  try {
    while (hear()) {
    }
  } catch (const std::exception& failure) {
    lose(gone_reason(known_as_, failure.what()));
  }
}

bool GlooPeer::hear() {
  Bytes memory(kNoticeBytes);
  const MutableBytes bytes = memory;
  auto list = tensors(bytes);
  const auto work = group_.recv(list, rank_, kNoticeTag);
  {
    const std::lock_guard lock(mutex_);
    notice_ = {work, std::move(memory)};
    if (stopped_) work->abort();
  }
  if (!wait(*work)) return false;
  const auto channel = load<std::uint32_t>(bytes, 0);
  const ClosingNotice notice{load<std::uint64_t>(bytes, 4), load<std::uint64_t>(bytes, 12)};
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(channel);
  if (found == links_.end()) closed_[channel] = notice;
  if (found != links_.end() && found->second != nullptr) found->second->lose(closed_reason(known_as_), notice);
  return true;
}

void GlooPeer::lose(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  lost_ = reason;
  for (const auto& [channel, link] : links_) {
    if (link != nullptr) link->lose(reason, {});
  }
}

}  // namespace epipe::transport
