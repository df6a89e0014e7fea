// Who trusts whom under TLS, and the files that a first try makes.
#include <sys/stat.h>

#include <algorithm>

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

}  // namespace
}  // namespace epipe::transport
