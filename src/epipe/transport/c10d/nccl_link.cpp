#include "epipe/transport/c10d/nccl_link.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "epipe/base/queue.h"

namespace epipe::transport {
namespace {

constexpr std::size_t kNcclCapacity = 1;
constexpr std::chrono::microseconds kLeastPause{20};
constexpr std::chrono::microseconds kMostPause{1000};
constexpr std::chrono::milliseconds kLook{100};  // how often the store is asked about the peer

std::string closed_key(int rank) { return fmt::format("closed/{}", rank); }

std::vector<at::Tensor> staged(const Bytes& bytes, c10::Device device) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  return {torch::from_blob(const_cast<std::byte*>(bytes.data()), {size}, torch::kByte).to(device)};
}

}  // namespace

NcclLink::NcclLink(const NcclLinkConfig& config, Store store, Liveness& liveness)
    : config_(config), store_(std::move(store)), liveness_(liveness), arrived_(kNcclCapacity) {
  out_ = make_communicator(true);
  in_ = make_communicator(false);
  thread_ = std::thread([this] { receive(); });
}

NcclLink::~NcclLink() {
  close();
  thread_.join();
  in_->abort();
  out_->abort();
}

// The lower rank is 0 in both communicators.
NcclLink::Communicator NcclLink::make_communicator(bool outgoing) {
  const int from = outgoing ? config_.rank : config_.peer;
  const auto prefix = c10::make_intrusive<c10d::PrefixStore>(fmt::format("from/{}", from), store_);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(prefix, config_.rank < config_.peer ? 0 : 1, 2);
}

void NcclLink::close() {
  if (closed_.exchange(true)) return;
  arrived_.close();
  try {
    const std::lock_guard lock(mutex_);
    const std::string count = std::to_string(sent_);
    store_->set(closed_key(config_.rank), std::vector<std::uint8_t>(count.begin(), count.end()));
  } catch (const std::exception&) {
    // The store is gone, and with it the run; the peer notices by itself.
  }
}

void NcclLink::check_open() {
  if (closed_) throw Closed();
  const std::lock_guard lock(mutex_);
  if (!lost_.empty()) throw ConnectionLost(lost_);
}

void NcclLink::send(Bytes message) {
  if (message.size() > config_.max_message_bytes) {
    throw std::runtime_error(fmt::format("a message of {} bytes is above the limit of {}", message.size(), config_.max_message_bytes));
  }
  check_open();
  const c10::DeviceGuard guard(config_.device);
  const int to = config_.rank < config_.peer ? 1 : 0;
  std::vector<at::Tensor> length{torch::full({1}, static_cast<std::int64_t>(message.size()), torch::kInt64).to(config_.device)};
  std::vector<at::Tensor> bytes = staged(message, config_.device);
  if (!transfer(out_->send(length, to, 0))) return check_open();
  if (!message.empty() && !transfer(out_->send(bytes, to, 0))) return check_open();
  const std::lock_guard lock(mutex_);
  ++sent_;
}

// The link's thread.
void NcclLink::receive() {
  try {
    const c10::DeviceGuard guard(config_.device);
    while (receive_one()) {
    }
  } catch (const std::exception& failure) {
    const std::string why = failure.what();
    const std::string reason = fmt::format("rank {}: {}", config_.peer, why.substr(0, why.find('\n')));
    {
      const std::lock_guard lock(mutex_);
      if (lost_.empty()) lost_ = reason;
    }
    arrived_.lose(reason, 0);
  }
}

bool NcclLink::receive_one() {
  const int from = config_.rank < config_.peer ? 1 : 0;
  std::vector<at::Tensor> length{torch::zeros({1}, torch::TensorOptions(torch::kInt64).device(config_.device))};
  if (!transfer(in_->recv(length, from, 0))) return false;
  const auto size = static_cast<std::uint64_t>(length[0].cpu().item<std::int64_t>());
  if (size > config_.max_message_bytes) {
    throw ConnectionLost(fmt::format("announced a message of {} bytes; the limit is {}", size, config_.max_message_bytes));
  }
  Bytes message;
  if (size > 0) {
    std::vector<at::Tensor> bytes{
        torch::empty({static_cast<std::int64_t>(size)}, torch::TensorOptions(torch::kByte).device(config_.device))};
    if (!transfer(in_->recv(bytes, from, 0))) return false;
    const at::Tensor host = bytes[0].cpu();
    append_bytes(message, {static_cast<const std::byte*>(host.data_ptr()), size});
  }
  return arrived_.push(std::move(message));
}

// Waits until it is done; false if the link has ended. Another thread cannot interrupt a wait of nccl, so this polls.
bool NcclLink::transfer(c10::intrusive_ptr<c10d::Work> work) {
  auto pause = kLeastPause;
  auto looked = std::chrono::steady_clock::now();
  while (!work->isCompleted()) {
    if (closed_) return false;
    if (const auto now = std::chrono::steady_clock::now(); now - looked > kLook) {
      looked = now;
      check_peer();
      const std::lock_guard lock(mutex_);
      if (!lost_.empty()) return false;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kMostPause);
  }
  work->wait();  // rethrows its error
  return true;
}

void NcclLink::check_peer() {
  std::string reason = liveness_.lost(config_.peer);
  std::uint64_t messages = 0;
  if (reason.empty() && store_->check({closed_key(config_.peer)})) {
    const auto count = store_->get(closed_key(config_.peer));
    messages = std::stoull(std::string(count.begin(), count.end()));
    reason = fmt::format("rank {} closed the link", config_.peer);
  }
  if (reason.empty()) return;
  arrived_.lose(reason, messages);
  const std::lock_guard lock(mutex_);
  if (lost_.empty()) lost_ = reason;
}

}  // namespace epipe::transport
