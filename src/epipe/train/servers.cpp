#include "epipe/train/servers.h"

#include <fmt/format.h>

#include <cstdint>
#include <random>

namespace epipe::train {
namespace {

std::string random_hex(int bytes) {
  std::random_device device;  // the operating system's generator
  std::string text;
  for (int i = 0; i < bytes; ++i) text += fmt::format("{:02x}", device() & 0xFFU);
  return text;
}

}  // namespace

SessionKey random_session_key() { return {random_hex(16), random_hex(32)}; }

std::map<std::string, std::string> about_commands(const SessionKey& key, int worker) {
  return {{"session", key.name}, {"ticket", key.ticket}, {"channel", "commands"}, {"worker", fmt::to_string(worker)}};
}

std::map<std::string, std::string> about_way(const SessionKey& key, int from, int to, int cut, std::uint64_t attempt) {
  return {{"session", key.name},
          {"ticket", key.ticket},
          {"channel", "way"},
          {"from", fmt::to_string(from)},
          {"worker", fmt::to_string(to)},
          {"cut", fmt::to_string(cut)},
          {"attempt", fmt::to_string(attempt)}};
}

Servers::Servers(std::vector<std::string> addresses, transport::DialConfig common, SessionKey key)
    : addresses_(std::move(addresses)), common_(std::move(common)), key_(std::move(key)) {}

std::vector<int> Servers::workers() const {
  std::vector<int> all;
  for (std::size_t i = 0; i < addresses_.size(); ++i) all.push_back(static_cast<int>(i) + 1);
  return all;
}

std::string Servers::name(int worker) const { return fmt::format("worker {} at {}", worker, address(worker)); }

// A new connection each time: after a loss the old one may hang.
std::unique_ptr<transport::Link> Servers::command(int worker) {
  transport::DialConfig config = common_;
  config.address = address(worker);
  dialers_[worker] = std::make_unique<transport::Dialer>(config);
  return dialers_[worker]->open(about_commands(key_, worker));
}

std::unique_ptr<transport::Link> Servers::way(int cut, int peer, std::uint64_t attempt) {
  return dialers_.at(peer)->open(about_way(key_, 0, peer, cut, attempt));
}

}  // namespace epipe::train
