// epipe bench link: bandwidth and round trip to a server, by message size
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "epipe/cli/bench/benches.h"
#include "epipe/cli/command.h"
#include "epipe/cli/security_flags.h"
#include "epipe/transport/connector.h"
#include "epipe/transport/measure_link.h"

namespace epipe::cli {
namespace {

struct LinkBenchFlags {
  std::string address;
  SecurityFlags security;
  std::vector<std::size_t> sizes = {1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24};
  double seconds = 0.5;
  bool json = false;
};

void print_speed(const transport::LinkSpeed& row, bool json) {
  if (json) {
    const nlohmann::json line = {{"bytes", row.bytes},
                                 {"messages", row.messages},
                                 {"round_trip_ms", 1e3 * row.round_trip_seconds},
                                 {"send_MBps", row.send_MBps},
                                 {"recv_MBps", row.recv_MBps}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{:>10} {:>14.3f} {:>12.1f} {:>12.1f}\n", row.bytes, 1e3 * row.round_trip_seconds, row.send_MBps, row.recv_MBps);
  }
}

void run_link_bench(const LinkBenchFlags& flags) {
  try {
    transport::ConnectConfig config = connect_config(flags.security);
    config.address = flags.address;
    transport::Connector connector(config);
    const auto link = connector.open({{"channel", "measure"}});
    if (!flags.json) fmt::print("{:>10} {:>14} {:>12} {:>12}\n", "bytes", "round trip ms", "to MB/s", "from MB/s");
    for (const auto& row : transport::measure_link(*link, flags.sizes, flags.seconds, std::chrono::seconds(60)))
      print_speed(row, flags.json);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

void add_link_bench(CLI::App& bench) {
  auto flags = std::make_shared<LinkBenchFlags>();  // owned by the callback as well
  auto* command = bench.add_subcommand("link", "Bandwidth and round trip to an epipe server, by message size");
  command->add_option("address", flags->address, "HOST:PORT of epipe serve")->required();
  command->add_option("--sizes", flags->sizes, "Bytes of the messages")->delimiter(',');
  command->add_option("--seconds", flags->seconds, "Time for each size and direction")->check(positive_number())->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object per size");
  add_security_flags(*command, flags->security, false);
  command->callback([flags] { run_link_bench(*flags); });
}

}  // namespace epipe::cli
