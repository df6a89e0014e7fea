#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"

// What a user says about machines and links.
namespace epipe::planner {

// "client:cpu", "server:host:7000@200GF/8GB/4cores", "cuda:0"
//
//   [NAME:]WHERE[@ATTRIBUTE[/ATTRIBUTE...]]      WHERE: cpu, cuda, cuda:N or HOST:PORT
//
// Attributes: 200GF (10^9 operations per second), 8GB (memory its process may have), 4cores, here (it shares the first one's cores).
struct WorkerSpec {
  std::string name;
  std::string device;              // "cpu", "cuda:0"; empty: a server
  std::string address{};           // HOST:PORT of a server
  std::optional<double> flops{};   // per second
  std::optional<double> memory{};  // bytes
  std::optional<double> cores{};
  bool here = false;

  bool is_server() const { return !address.empty(); }
};

// A list with commas. The first worker is on this machine.
Result<std::vector<WorkerSpec>> parse_workers(std::string_view text);

// What is known of a link; the rest is to be measured.
struct LinkSpec {
  std::optional<double> up{};  // bits per second
  std::optional<double> down{};
  std::optional<double> delay{};  // seconds, one way
};

// Bytes per second that are left of a line's rate after TCP, IP and Ethernet.
constexpr double payload_rate(double bits_per_second) { return 0.95 * bits_per_second / 8; }

// "up=10M,down=100M,delay=20ms"; rate=10M is both.
Result<LinkSpec> parse_link(std::string_view text);

}  // namespace epipe::planner
