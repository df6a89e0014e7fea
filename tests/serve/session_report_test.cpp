#include "epipe/serve/session_report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "epipe/session/step_result.h"

namespace epipe::serve {
namespace {

void say(const SessionReports& reports, const std::string& text) {
  (void)::send(reports.session_end(), text.data(), text.size(), MSG_DONTWAIT);
}

std::string totals_text(std::uint64_t steps) {
  session::StepTotals totals;
  totals.steps = steps;
  return to_text(totals);
}

// Replies to a command as a session that has no model would.
class Scripted final : public session::Participant {
 public:
  session::Reply handle(const session::Command& command) override {
    if (std::holds_alternative<session::StepCommand>(command)) {
      session::StepReply reply;
      reply.result = session::no_result(1, 2);
      reply.result.forward[0].wire_bytes = 100;
      return reply;
    }
    if (std::holds_alternative<session::CommitCommand>(command)) return session::CommitReply{};
    if (std::holds_alternative<session::SaveCommand>(command)) return session::SaveReply{};
    return session::ErrorReply{};
  }
  bool ended() const override { return false; }
};

TEST(SessionReports, CountWhatASessionDoes) {
  SessionReports reports;
  {
    Scripted scripted;
    CountingParticipant counting(scripted, reports.session_end());
    session::StepCommand step;
    step.batch.samples = {1, 2, 3};
    for (std::uint64_t k = 0; k < 3; ++k) {
      (void)counting.handle(step);
      session::CommitCommand commit;
      commit.step = k;
      (void)counting.handle(commit);
      (void)counting.handle(commit);  // said again after a lost link
    }
    step.training = false;  // validation
    (void)counting.handle(step);
    (void)counting.handle(session::SaveCommand{});
    (void)counting.handle(session::LeaveCommand{});
  }
  reports.read(1);
  EXPECT_EQ(reports.totals().steps, 3U);
  EXPECT_EQ(reports.totals().samples, 9U);
  EXPECT_EQ(reports.totals().checkpoints, 1U);
  EXPECT_EQ(reports.totals().forward.at(0).wire_bytes, 300U);
  EXPECT_EQ(reports.rejected(), 0U);
}

TEST(SessionReports, TheLastOneCounts) {
  SessionReports reports;
  reports.read(1);
  EXPECT_EQ(reports.totals().steps, 0U);
  say(reports, totals_text(1));
  say(reports, totals_text(5));
  reports.read(1);
  EXPECT_EQ(reports.totals().steps, 5U);
}

TEST(SessionReports, OfASessionThatLiesChangeNothing) {
  SessionReports reports;
  say(reports, totals_text(5));
  reports.read(1);
  for (const std::string& lie : {totals_text(4), totals_text(std::uint64_t{1} << 60), std::string("{}"), std::string("\0\0", 2),
                                 std::string(150'000, '['), std::string(R"({"steps": 1e999})")}) {
    const auto before = reports.rejected();
    say(reports, lie);
    reports.read(1);
    EXPECT_EQ(reports.totals().steps, 5U);
    EXPECT_EQ(reports.rejected(), before + 1) << lie.substr(0, 40);
  }
}

TEST(SessionReports, AFloodIsReadALittleAtATime) {
  SessionReports reports;
  const auto flood = [&] {
    int sent = 0;
    while (::send(reports.session_end(), "x", 1, MSG_DONTWAIT) == 1) ++sent;
    return sent;
  };
  EXPECT_GT(flood(), 10);
  reports.read(1);
  EXPECT_EQ(reports.rejected(), 1U) << "only the last of a few is looked at";
  EXPECT_LE(flood(), 4) << "the rest still waits";
}

// A session may hand over anything its socket carries: descriptors among it must not stay with the server.
TEST(SessionReports, DescriptorsThatAreSentAlongDoNotStay) {
  SessionReports reports;
  const auto open_files = [] {
    int count = 0;
    for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  const int before = open_files();
  for (int i = 0; i < 3; ++i) {
    char byte = 'x';
    iovec data{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int own = STDERR_FILENO;
    std::memcpy(CMSG_DATA(header), &own, sizeof(own));
    ASSERT_EQ(::sendmsg(reports.session_end(), &message, MSG_DONTWAIT), 1);
  }
  reports.read(1);
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace epipe::serve
