#include "epipe/serve/session_report.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "epipe/base/printable.h"

namespace epipe::serve {
namespace {

constexpr double kReportSeconds = 1;
constexpr std::string_view kModel = "model ";  // begins a message that is no report
constexpr std::size_t kModelBytes = 48;
constexpr int kMostReads = 4;  // per call: a session that sends more must wait

void close_end(int& end) {
  if (end >= 0) ::close(std::exchange(end, -1));
}

}  // namespace

session::Reply CountingParticipant::handle(const session::Command& command) {
  session::Reply reply = inner_.handle(command);
  count(command, reply);
  if (since_sent_.seconds() > kReportSeconds) {
    since_sent_ = {};
    send();
  }
  return reply;
}

void CountingParticipant::count(const session::Command& command, const session::Reply& reply) {
  const auto* const configure = std::get_if<session::ConfigureCommand>(&command);
  if (configure != nullptr && std::holds_alternative<session::ConfigureReply>(reply) && configure->spec.is_object()) {
    const auto name = configure->spec.find("model");
    if (name != configure->spec.end() && name->is_string()) send_model(name->get<std::string>());
  }
  const auto* const step = std::get_if<session::StepCommand>(&command);
  const auto* const stepped = std::get_if<session::StepReply>(&reply);
  if (step != nullptr && stepped != nullptr && step->training) {
    totals_.add(stepped->result);
    if (stepped->result.samples == 0) totals_.samples += step->batch.samples.size();  // the client counts the samples of its last stage
  }
  const auto* const overlapping = std::get_if<session::OverlappedStepCommand>(&command);
  const auto* const overlapped = std::get_if<session::OverlappedStepReply>(&reply);
  if (overlapping != nullptr && overlapped != nullptr) {
    totals_.add(overlapped->result);
    if (overlapped->result.samples == 0) totals_.samples += overlapping->batch.samples.size();
  }
  if (const auto* const audited = std::get_if<session::AuditReply>(&reply)) {
    auto took = audited->result.step;
    took.samples = 0;  // counted in the step
    totals_.add(took);
  }
  const auto* const forward = std::get_if<session::ForwardCommand>(&command);
  if (forward != nullptr && forward->training && std::holds_alternative<session::ForwardReply>(reply)) {
    totals_.samples += forward->samples.size();
  }
  const auto* const commit = std::get_if<session::CommitCommand>(&command);
  if (commit != nullptr && std::holds_alternative<session::CommitReply>(reply) && commit->step + 1 != committed_) {
    committed_ = commit->step + 1;
    ++totals_.steps;
  }
  if (std::holds_alternative<session::SaveReply>(reply)) ++totals_.checkpoints;
}

// Does not wait for a server that does not read: the next message has all totals again.
void CountingParticipant::send() const {
  if (socket_ < 0) return;
  const std::string text = to_text(totals_);
  if (text.size() <= session::kMaxTotalsBytes) (void)::send(socket_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void CountingParticipant::send_model(const std::string& name) const {
  const std::string text = std::string(kModel) + name.substr(0, kModelBytes);
  if (socket_ >= 0) (void)::send(socket_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

SessionReports::SessionReports() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw std::runtime_error(fmt::format("cannot make a socket for a session: {}", std::strerror(errno)));
  }
  server_end_ = ends[0];
  session_end_ = ends[1];
}

SessionReports::~SessionReports() {
  close_end(server_end_);
  close_end(session_end_);
}

void SessionReports::close_session_end() { close_end(session_end_); }

void SessionReports::read(double seconds) {
  std::string last;
  std::string buffer(session::kMaxTotalsBytes, '\0');
  for (int i = 0; i < kMostReads; ++i) {
    const ssize_t got = ::recv(server_end_, buffer.data(), buffer.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (got <= 0) break;
    const auto bytes = static_cast<std::size_t>(got);
    if (bytes <= kModel.size() + kModelBytes && std::string_view(buffer).substr(0, bytes).starts_with(kModel)) {
      model_ = printable(std::string_view(buffer).substr(kModel.size(), bytes - kModel.size()), kModelBytes);
      continue;
    }
    last = bytes <= buffer.size() ? buffer.substr(0, bytes) : "too long";
  }
  if (last.empty()) return;
  auto reported = session::step_totals_from_text(last);
  if (reported && may_follow(totals_, reported.value(), seconds)) {
    if (reported.value().checkpoints > totals_.checkpoints) saved_at_ = std::time(nullptr);
    totals_ = std::move(reported).value();
  } else {
    ++rejected_;
  }
}

}  // namespace epipe::serve
