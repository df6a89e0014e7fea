#pragma once

#include <cstdint>
#include <string>

#include "epipe/base/clock.h"
#include "epipe/session/participant.h"
#include "epipe/session/step_totals.h"

// What a session tells its server of the work it does: messages over a socket that only the two have, the last one counts. The server never
// waits for one, reads a bounded number of bounded length now and then, and believes what fits the declared metrics, does not fall and is
// possible in the session's time. A session that lies can make its own numbers wrong within these bounds, and nothing else.
namespace epipe::serve {

// In the session's process: does what another participant does, and counts.
class CountingParticipant final : public session::Participant {
 public:
  // `socket`: where the counts go, at most one a second, and the last with the object; -1: nowhere. Not owned.
  CountingParticipant(session::Participant& inner, int socket) : inner_(inner), socket_(socket) {}
  ~CountingParticipant() override { send(); }
  CountingParticipant(const CountingParticipant&) = delete;
  CountingParticipant& operator=(const CountingParticipant&) = delete;

  session::Reply handle(const session::Command& command) override;
  bool ended() const override { return inner_.ended(); }
  const session::StepTotals& totals() const { return totals_; }

 private:
  void count(const session::Command& command, const session::Reply& reply);
  void send() const;
  void send_model(const std::string& name) const;

  session::Participant& inner_;
  const int socket_;
  session::StepTotals totals_;
  std::uint64_t committed_ = 0;  // the last step that was, plus 1
  Stopwatch since_sent_;
};

// In the server: the counts of one session.
class SessionReports {
 public:
  SessionReports();  // throws std::runtime_error without a socket
  ~SessionReports();
  SessionReports(const SessionReports&) = delete;
  SessionReports& operator=(const SessionReports&) = delete;

  int session_end() const { return session_end_; }  // for the process that is about to start
  void close_session_end();                         // it has its own by now
  // Takes what has arrived; `seconds`: how long the session has lived.
  void read(double seconds);
  const session::StepTotals& totals() const { return totals_; }
  const std::string& model() const { return model_; }  // as the session calls it: printable, short; empty before it has one
  std::uint64_t rejected() const { return rejected_; }

 private:
  int server_end_ = -1;
  int session_end_ = -1;
  session::StepTotals totals_;
  std::string model_;
  std::uint64_t rejected_ = 0;
};

}  // namespace epipe::serve
