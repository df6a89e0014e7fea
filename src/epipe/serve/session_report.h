#pragma once

#include <cstdint>
#include <ctime>
#include <string>

#include "epipe/base/clock.h"
#include "epipe/session/participant.h"
#include "epipe/session/step_totals.h"

// How a session reports its work to its server: messages over a private socket, of which the last one counts. The server never waits for
// one, periodically reads a bounded number of bounded length, and accepts totals that fit the declared metrics, do not fall and are
// possible in the session's time. A lying session can falsify its own numbers within these bounds, and nothing else.
namespace epipe::serve {

// In the session's process: forwards to another participant, and counts.
class CountingParticipant final : public session::Participant {
 public:
  // `socket`: gets the counts, at most one per second, and the last on destruction; -1: none. Not owned.
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
  std::uint64_t committed_ = 0;  // the last committed step, plus 1
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
  void close_session_end();                         // after the process has inherited it
  // Reads the messages that have arrived; `seconds`: how long the session has lived.
  void read(double seconds);
  const session::StepTotals& totals() const { return totals_; }
  const std::string& model() const { return model_; }  // as the session calls it: printable, short; empty before it has one
  std::time_t saved_at() const { return saved_at_; }   // when its last checkpoint was heard of; 0: none yet
  std::uint64_t rejected() const { return rejected_; }

 private:
  int server_end_ = -1;
  int session_end_ = -1;
  session::StepTotals totals_;
  std::string model_;
  std::time_t saved_at_ = 0;
  std::uint64_t rejected_ = 0;
};

}  // namespace epipe::serve
