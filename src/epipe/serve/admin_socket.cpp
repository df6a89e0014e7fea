#include "epipe/serve/admin_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "epipe/base/printable.h"

namespace epipe::serve {
namespace {

using monitor::Socket;
using nlohmann::json;

constexpr const char* kSocketName = "socket";
constexpr int kWaiting = 16;  // clients waiting for their turn
constexpr double kAskSeconds = 2;
constexpr double kTakeSeconds = 5;
constexpr std::size_t kMaxAnswerBytes = 16 << 20;

std::string admin_folder(const std::string& state_dir) { return state_dir + "/admin"; }

// The address of the socket in an open folder: short, however long the folder's path is.
sockaddr_un address_in(const Socket& folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}/{}", folder.fd(), kSocketName);
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

Socket open_folder(const std::string& path) { return Socket(::open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)); }

// Creates the folder for this user only, and checks its owner.
Socket own_folder(const std::string& path) {
  require(make_private_folders(path));
  Socket folder = open_folder(path);
  struct stat status {};
  if (folder.fd() < 0 || ::fstat(folder.fd(), &status) != 0 || status.st_uid != ::geteuid()) {
    throw std::runtime_error(fmt::format("expected {} to be a folder of this user; remove what is there", path));
  }
  if (::fchmodat(AT_FDCWD, fmt::format("/proc/self/fd/{}", folder.fd()).c_str(), 0700, 0) != 0) {
    throw std::runtime_error(fmt::format("cannot close {} to others: {}", path, std::strerror(errno)));
  }
  return folder;
}

Socket listen_in(const std::string& path) {
  const Socket folder = own_folder(path);
  const sockaddr_un address = address_in(folder);
  ::unlinkat(folder.fd(), kSocketName, 0);
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 || ::listen(socket.fd(), kWaiting) != 0) {
    throw std::runtime_error(fmt::format("cannot listen in {}: {}", path, std::strerror(errno)));
  }
  return socket;
}

// The user at the other end, according to the kernel.
uid_t peer_of(const Socket& socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.uid : static_cast<uid_t>(-1);
}

json error_of(const std::string& text) { return {{"error", text}}; }

[[noreturn]] void fail_to_connect(const std::string& state_dir, int reason) {
  if (reason == EACCES || reason == EPERM) {
    throw std::runtime_error(fmt::format("the server of {} is another user's; ask as that user, or as root", state_dir));
  }
  if (reason == ENOENT || reason == ENOTDIR || reason == ECONNREFUSED) {
    throw NoServer(
        fmt::format("no server runs with --state-dir {}; start it with \"epipe serve\", or name the folder that it has", state_dir));
  }
  throw std::runtime_error(fmt::format("cannot ask the server of {}: {}", state_dir, std::strerror(reason)));
}

[[noreturn]] void fail_to_hear(const std::string& state_dir, double seconds) {
  throw std::runtime_error(fmt::format(
      "expected an answer from the server of {} within {:.0f} s, got none; it still runs: its log may say why", state_dir, seconds));
}

// Waits while too many others do.
void connect_to(const Socket& socket, const sockaddr_un& address, const std::string& state_dir, double seconds) {
  const timeval most{static_cast<time_t>(seconds), static_cast<suseconds_t>(1e6 * (seconds - std::floor(seconds)))};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
  if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return;
  if (errno == EAGAIN) fail_to_hear(state_dir, seconds);
  fail_to_connect(state_dir, errno);
}

}  // namespace

AdminSocket::AdminSocket(const std::string& state_dir, Handler handler)
    : handler_(std::move(handler)), folder_(admin_folder(state_dir)), listening_(listen_in(folder_)) {
  thread_ = std::thread([this] { run(); });
}

AdminSocket::~AdminSocket() {
  stopping_ = true;
  thread_.join();
  ::unlink((folder_ + "/" + kSocketName).c_str());
  ::rmdir(folder_.c_str());
}

void AdminSocket::run() {
  while (!stopping_) {
    pollfd ready{listening_.fd(), POLLIN, 0};
    if (::poll(&ready, 1, 100) <= 0) continue;
    const Socket client(::accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.fd() < 0) {  // out of descriptors: it waits
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    try {
      answer(client);
    } catch (const std::exception&) {  // no memory for an answer: there is none
    }
  }
}

void AdminSocket::answer(const Socket& client) const {
  const uid_t user = peer_of(client);
  json reply;
  if (user != 0 && user != ::geteuid()) {
    reply = error_of("only the server's own user, and root, may ask");
  } else {
    const std::string line = client.read_until("\n", kMaxAdminBytes, kAskSeconds);
    const auto request = parse_admin_request(line);
    try {
      reply = request ? handler_(request.value()) : error_of(request.error().message);
    } catch (const std::exception& error) {
      reply = error_of(error.what());
    }
  }
  (void)client.write(reply.dump(-1, ' ', true, json::error_handler_t::replace) + "\n", kTakeSeconds);
}

json ask_server(const std::string& state_dir, const AdminRequest& request, double seconds) {
  const Socket folder = open_folder(admin_folder(state_dir));
  if (folder.fd() < 0) fail_to_connect(state_dir, errno);
  const sockaddr_un address = address_in(folder);
  const Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  connect_to(socket, address, state_dir, seconds);
  struct stat owner {};
  if (::fstat(folder.fd(), &owner) != 0 || peer_of(socket) != owner.st_uid) {
    throw std::runtime_error(fmt::format("who listens in {} is not its owner; nothing was asked", admin_folder(state_dir)));
  }
  const Stopwatch watch;
  const std::string line = socket.write(to_line(request), kAskSeconds) ? socket.read_until("\n", kMaxAnswerBytes, seconds) : "";
  const json answer = json::parse(line, nullptr, false);
  if (!answer.is_object() && watch.seconds() >= seconds) fail_to_hear(state_dir, seconds);
  if (!answer.is_object()) throw ServerHungUp(fmt::format("the server of {} hung up without an answer; its log may say why", state_dir));
  if (const auto error = answer.find("error"); error != answer.end() && error->is_string()) {
    throw std::runtime_error(printable(error->get<std::string>()));
  }
  return answer;
}

}  // namespace epipe::serve
