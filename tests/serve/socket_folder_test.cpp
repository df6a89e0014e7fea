#include "epipe/serve/socket_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "epipe/base/file.h"
#include "support/temp_folder.h"

namespace epipe::serve {
namespace {

using testing::TempFolder;

// A server that is killed while it holds a folder.
void leave_a_folder(const std::string& base) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    new SocketFolder(base);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
}

TEST(SocketFolder, IsForItsOwnerAndGoesWithIt) {
  const TempFolder base;
  {
    const SocketFolder folder(base.path());
    struct stat status {};
    ASSERT_EQ(::stat(folder.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700);
  }
  EXPECT_TRUE(list_folder(base.path()).empty());
}

TEST(SocketFolder, OfAKilledServerIsRemovedByTheNextOneAndThatOfALivingOneIsNot) {
  const TempFolder base;
  const SocketFolder living(base.path());
  leave_a_folder(base.path());
  leave_a_folder(base.path());
  EXPECT_EQ(list_folder(base.path()).size(), 2U) << "the second one removed the first";
  const SocketFolder next(base.path());
  EXPECT_EQ(list_folder(base.path()).size(), 2U);
  EXPECT_EQ(::access(living.path().c_str(), F_OK), 0);
  EXPECT_EQ(::access(next.path().c_str(), F_OK), 0);
}

TEST(SocketFolder, LeavesAloneWhatIsNoServers) {
  const TempFolder base;
  ASSERT_TRUE(make_folders(base.file("epipe-serve-other/inside")));
  ASSERT_TRUE(make_folders(base.file("elsewhere")));
  ASSERT_TRUE(write_file(base.file("elsewhere/lock"), {}));
  ASSERT_EQ(::symlink(base.file("elsewhere").c_str(), base.file("epipe-serve-link").c_str()), 0);
  const SocketFolder folder(base.path());
  EXPECT_EQ(::access(base.file("epipe-serve-link/lock").c_str(), F_OK), 0);
  EXPECT_EQ(::access(base.file("epipe-serve-other/inside").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace epipe::serve
