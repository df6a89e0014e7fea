// Who trusts whom under TLS, and the files that a first try makes.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "epipe/base/queue.h"
#include "support/greeter.h"

namespace epipe::transport {
namespace {

using testing::greeted;
using testing::Greeter;
using testing::plain_dial;
using testing::plain_listen;
using testing::refusal;
using testing::tls_dial;
using testing::tls_files;
using testing::tls_listen;

TEST(Tls, TheRightTokenOpensALink) {
  const Greeter greeter(tls_listen());
  EXPECT_EQ(greeted(tls_dial(), greeter.address()), "");
}

TEST(Tls, AWrongTokenOrNoneIsRefusedWithoutBeingShown) {
  const Greeter greeter(tls_listen());
  auto dial = tls_dial();
  for (const std::string& token :
       {std::string(), std::string("guess"), tls_files().token + "0", tls_files().token.substr(1), tls_files().ca.substr(30, 20)}) {
    dial.token = token;
    const auto text = refusal(dial, greeter.address(), Refusal::kUnauthenticated);
    EXPECT_NE(text.find("token"), std::string::npos) << text;
    EXPECT_TRUE(token.empty() || text.find(token) == std::string::npos) << text;
    EXPECT_EQ(text.find(tls_files().token), std::string::npos) << text;
  }
  EXPECT_EQ(greeted(tls_dial(), greeter.address()), "");
}

TEST(Tls, EveryListedTokenIsAccepted) {
  auto listen = tls_listen();
  listen.tokens = {"first", "second"};
  const Greeter greeter(listen);
  auto dial = tls_dial();
  for (const char* const token : {"first", "second"}) {
    dial.token = token;
    EXPECT_EQ(greeted(dial, greeter.address()), "");
  }
}

TEST(Tls, AServerOfAnotherCaIsNotTrusted) {
  const auto others = testing::make_tls_files();
  const Greeter greeter(tls_listen());
  auto dial = tls_dial();
  dial.ca_pem = others.ca;
  refusal(dial, greeter.address(), Refusal::kUntrusted);
}

TEST(Tls, AServerOfAnotherNameIsNotTrusted) {
  const Greeter greeter(tls_listen());
  auto dial = tls_dial();
  dial.server_name = "remote.example";
  refusal(dial, greeter.address(), Refusal::kUntrusted);
  dial.server_name = "localhost";
  EXPECT_EQ(greeted(dial, greeter.address()), "");
}

TEST(Tls, AClientCertificateReplacesTheToken) {
  auto listen = tls_listen();
  listen.client_ca_pem = tls_files().ca;
  listen.tokens = {};
  const Greeter greeter(listen);
  auto dial = tls_dial();
  dial.token = "";
  dial.identity = tls_files().client;
  EXPECT_EQ(greeted(dial, greeter.address()), "epipe client");
  dial.identity.reset();
  refusal(dial, greeter.address(), Refusal::kUnauthenticated);
}

TEST(Tls, AClientCertificateOfAnotherCaIsRefused) {
  auto listen = tls_listen();
  listen.client_ca_pem = tls_files().ca;
  const Greeter greeter(listen);
  auto dial = tls_dial();
  dial.identity = testing::make_tls_files().client;
  refusal(dial, greeter.address(), std::nullopt);
}

TEST(Tls, PlaintextToATlsListenerFails) {
  const Greeter greeter(tls_listen());
  refusal(plain_dial(), greeter.address(), std::nullopt);
}

TEST(Tls, ATlsDialerDoesNotTalkToAPlaintextListener) {
  const Greeter greeter(plain_listen());
  refusal(tls_dial(), greeter.address(), Refusal::kUntrusted);
}

TEST(InitTls, MakesFilesForTheOwnerOnlyAndOverwritesNothing) {
  const testing::TempFolder folder;
  const std::string inside = folder.file("tls");
  ASSERT_TRUE(init_tls(inside, {"server.example", "10.1.2.3"}).ok());
  const std::vector<std::string> names{"ca.key", "ca.pem", "client.key", "client.pem", "server.key", "server.pem", "token"};
  auto found = list_folder(inside);
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, names);
  for (const auto& name : names) {
    struct stat status {};
    ASSERT_EQ(::stat((inside + "/" + name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600) << name;
  }
  EXPECT_EQ(testing::read_text(inside + "/token").size(), 65U);
  const auto before = testing::read_text(inside + "/token");
  EXPECT_FALSE(init_tls(inside, {}).ok());
  EXPECT_EQ(testing::read_text(inside + "/token"), before);
  EXPECT_FALSE(init_tls(folder.file("other"), {"not a name,DNS:evil"}).ok());
}

TEST(InitTls, TheNamesItIsGivenAreTrusted) {
  const testing::TempFolder folder;
  ASSERT_TRUE(init_tls(folder.path(), {"server.example"}).ok());
  auto listen = tls_listen();
  listen.identity = Identity{testing::read_text(folder.file("server.pem")), testing::read_text(folder.file("server.key"))};
  const Greeter greeter(listen);
  auto dial = tls_dial();
  dial.ca_pem = testing::read_text(folder.file("ca.pem"));
  dial.server_name = "server.example";
  EXPECT_EQ(greeted(dial, greeter.address()), "");
  EXPECT_EQ(greeted(dial, "localhost:" + std::to_string(greeter.port())), "");
}

struct Footprint {
  std::uint64_t bytes = 0;
  std::size_t files = 0;
};

Footprint own_footprint() {
  Footprint own;
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages >> pages;
  own.bytes = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) own.files += entry.path().empty() ? 0 : 1;
  return own;
}

// Certificates are short-lived where they are renewed by a machine; a link may live through many of them.
TEST(Tls, AThousandRenewedCertificatesLeaveNothingBehindButTheLinksThatAreOpen) {
  const auto others = testing::make_tls_files();
  std::array<ListenConfig, 2> listen = {tls_listen(), tls_listen()};
  listen[1].identity = others.server;
  Queue<std::unique_ptr<Link>> links(4);
  Listener listener(listen[0], [&](Incoming incoming) { links.push(incoming.accept()); });
  auto dial = tls_dial();
  dial.address = testing::here(listener);
  Connector old(dial);
  const auto near = old.open({});
  const auto far = links.pop();
  const auto renew = [&](int times) {
    for (int i = 1; i <= times; ++i) listener.renew(listen[i % 2]);  // ends with the first
  };
  renew(40);
  const Footprint before = own_footprint();
  renew(1000);
  const Footprint after = own_footprint();
  EXPECT_LE(after.files, before.files + 8);
  EXPECT_LT(after.bytes, before.bytes + (std::uint64_t{48} << 20)) << "a server that stays costs more than 48 kB";
  near->send(Bytes(3));
  EXPECT_EQ(far->recv(std::chrono::seconds(20)), Bytes(3)) << "a link that was open before is open still";
  Connector fresh(dial);
  EXPECT_NO_THROW(fresh.open({}));
}

}  // namespace
}  // namespace epipe::transport
