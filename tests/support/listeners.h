#pragma once

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace epipe::testing {

// A TCP socket that waits for connections, as the kernel lists it.
struct Listener {
  std::string address;  // hex digits of /proc/net/tcp{,6}
  int port = 0;

  bool on_loopback() const {
    if (address == "00000000000000000000000001000000") return true;  // ::1
    const bool v4 = address.size() == 8 || address.starts_with("0000000000000000FFFF0000");
    return v4 && address.ends_with("7F");  // 127.*, its bytes in reverse
  }
};

// The process and all that descend from it.
inline std::set<int> process_tree(int root) {
  std::set<int> tree = {root};
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream file(entry.path() / "stat");
      std::string stat;
      std::getline(file, stat);
      std::istringstream rest(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));  // the program's name may hold anything
      char state = 0;
      int parent = 0;
      if (rest >> state >> parent && tree.contains(parent)) grows = tree.insert(std::stoi(name)).second || grows;
    }
  }
  return tree;
}

// The inodes of the sockets that these processes have open.
inline std::set<std::string> socket_inodes(const std::set<int>& processes) {
  std::set<std::string> inodes;
  for (const int pid : processes) {
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone)) {
      std::array<char, 64> target{};
      const ssize_t size = ::readlink(entry.path().c_str(), target.data(), target.size() - 1);
      const std::string text(target.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
      if (text.starts_with("socket:[")) inodes.insert(text.substr(8, text.size() - 9));
    }
  }
  return inodes;
}

// What a process and its descendants listen on, over IPv4 and IPv6.
inline std::vector<Listener> listeners_of(int root) {
  const auto own = socket_inodes(process_tree(root));
  std::vector<Listener> found;
  for (const char* const path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    for (std::getline(file, line); std::getline(file, line);) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      if (state != "0A" || !own.contains(inode)) continue;
      const auto colon = local.find(':');
      found.push_back({local.substr(0, colon), std::stoi(local.substr(colon + 1), nullptr, 16)});
    }
  }
  return found;
}

}  // namespace epipe::testing
