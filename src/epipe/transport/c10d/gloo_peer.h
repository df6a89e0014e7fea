#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "epipe/base/bytes.h"

namespace epipe::transport {

class GlooLink;

std::string gone_reason(int rank, const std::string& why);  // "rank 2 is gone: ..."

// A transfer requested from gloo, and the memory it uses. gloo cannot cancel a request: the memory stays until the group is gone.
struct Transfer {
  c10::intrusive_ptr<c10d::Work> work;
  Bytes memory;
};

// Sent when a side closes a link: how many messages it has sent, and how many it has received.
struct ClosingNotice {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

// This rank's view of one other rank: the links between them, and a thread that learns when the other side closes a link or is gone.
class GlooPeer {
 public:
  // `known_as`: its rank in the whole run, for error messages.
  GlooPeer(c10d::ProcessGroupGloo& group, int rank, int known_as);
  ~GlooPeer();
  GlooPeer(const GlooPeer&) = delete;
  GlooPeer& operator=(const GlooPeer&) = delete;

  // The bytes must stay in place until the transfer is done or retired. Throw what c10d throws.
  c10::intrusive_ptr<c10d::Work> start_send(MutableBytes bytes, std::uint32_t channel);
  c10::intrusive_ptr<c10d::Work> start_recv(MutableBytes bytes, std::uint32_t channel);
  // True when done, false when aborted. Waits far longer than any group's timeout. Throws what c10d throws.
  static bool wait(c10d::Work& work);

  // Links enter on construction and leave before destruction. Throws std::invalid_argument for a channel that was used before.
  void enter(std::uint32_t channel, GlooLink& link);
  void leave(std::uint32_t channel);
  // Tells the other side that the link is closed here.
  void tell_closed(std::uint32_t channel, const ClosingNotice& notice);
  void retire(Transfer transfer);

  // Ends the thread; call before the group is destroyed.
  void stop();

  int known_as() const { return known_as_; }
  std::string lost();  // why it is gone, or empty while it is there

 private:
  void listen();
  bool hear();
  void lose(const std::string& reason);

  c10d::ProcessGroupGloo& group_;
  const int rank_;
  const int known_as_;
  std::mutex mutex_;
  std::map<std::uint32_t, GlooLink*> links_;       // null: was used; mutex_ guards this and the members below
  std::map<std::uint32_t, ClosingNotice> closed_;  // by the other side, before the link was made here
  std::vector<Transfer> retired_;
  std::string lost_;
  Transfer notice_;  // receives the other side's next notice
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace epipe::transport
