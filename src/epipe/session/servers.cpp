#include "epipe/session/servers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "epipe/base/file.h"

namespace epipe::session {
namespace {

// An unpredictable secret.
template <std::size_t kBytes>
std::string random_hex() {
  std::array<unsigned char, kBytes> bytes{};
  if (::getentropy(bytes.data(), bytes.size()) != 0)
    throw std::runtime_error("the operating system has no random numbers for a session's ticket");
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace

SessionKey new_session_key() { return {random_hex<16>(), random_hex<32>()}; }

SessionKey session_key(const std::string& run_dir, bool resume) {
  const std::string path = run_dir + "/session.json";
  if (resume) {
    const auto file = read_file(path, 4096);
    if (!file) throw std::runtime_error("cannot continue the session on the servers: " + file.error().message);
    const auto text = nlohmann::json::parse(file.value(), nullptr, /*allow_exceptions=*/false);
    if (!text.is_object()) throw std::runtime_error(path + " is not a session's key");
    return {text.value("name", ""), text.value("ticket", "")};
  }
  const SessionKey key = new_session_key();
  const std::string text = nlohmann::json{{"name", key.name}, {"ticket", key.ticket}}.dump();
  Result<void> written = make_private_folders(run_dir);
  if (written) written = write_private_file(path, {std::as_bytes(std::span(text))});
  if (!written) throw std::runtime_error(written.error().message);
  return key;
}

std::map<std::string, std::string> command_channel_metadata(const SessionKey& key, int worker) {
  return {{"session", key.name}, {"ticket", key.ticket}, {"channel", "commands"}, {"worker", fmt::to_string(worker)}};
}

std::map<std::string, std::string> data_channel_metadata(const SessionKey& key, int from, int to, int cut, std::uint64_t attempt) {
  return {{"session", key.name},
          {"ticket", key.ticket},
          {"channel", "data"},
          {"from", fmt::to_string(from)},
          {"worker", fmt::to_string(to)},
          {"cut", fmt::to_string(cut)},
          {"attempt", fmt::to_string(attempt)}};
}

Servers::Servers(std::vector<std::string> addresses, transport::ConnectConfig common, SessionKey key)
    : addresses_(std::move(addresses)), common_(std::move(common)), key_(std::move(key)) {}

std::vector<int> Servers::workers() const {
  std::vector<int> all;
  for (std::size_t i = 0; i < addresses_.size(); ++i) all.push_back(static_cast<int>(i) + 1);
  return all;
}

std::string Servers::name(int worker) const { return fmt::format("worker {} at {}", worker, address(worker)); }

// A new connection each time: after a loss the old one may hang.
std::unique_ptr<transport::Link> Servers::command_channel(int worker) {
  transport::ConnectConfig config = common_;
  config.address = address(worker);
  connectors_[worker] = std::make_unique<transport::Connector>(config);
  return connectors_[worker]->open(command_channel_metadata(key_, worker));
}

std::unique_ptr<transport::Link> Servers::data_channel(int cut, int peer, std::uint64_t attempt) {
  return connectors_.at(peer)->open(data_channel_metadata(key_, 0, peer, cut, attempt));
}

}  // namespace epipe::session
