// epipe watch: the report as a page that follows runs in progress
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/cli/command.h"
#include "epipe/cli/stop_signal.h"
#include "epipe/monitor/http_server.h"
#include "epipe/report/live_report.h"

namespace epipe::cli {
namespace {

constexpr double kBetweenLooks = 1;    // seconds
constexpr double kShareOfDrawing = 5;  // drawing takes at most a fifth of one core, however long the runs are

struct WatchFlags {
  std::vector<std::string> runs;
  std::string listen = "127.0.0.1:7080";
};

std::unique_ptr<monitor::HttpServer> serve_pages(const std::string& address, const report::LiveReport& live) {
  monitor::HttpConfig http;
  http.address = address;
  http.pages["/"] = [&live] { return monitor::Response{.type = "text/html; charset=utf-8", .body = live.page()}; };
  http.events["/events"] = [&live](std::uint64_t& seen) { return live.events(seen); };
  try {
    return std::make_unique<monitor::HttpServer>(std::move(http));
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("--listen: {}", error.what()));
  } catch (const std::runtime_error& error) {
    throw Failure(fmt::format("--listen: {}", error.what()));
  }
}

void run_watch(const WatchFlags& flags) {
  std::vector<report::FollowedRun> runs;
  for (const std::string& folder : flags.runs) runs.push_back(value_or_fail(report::FollowedRun::open(folder)));
  report::LiveReport live(std::move(runs));
  const auto server = serve_pages(flags.listen, live);
  const auto& stop = stop_on_signals();
  fmt::print("watching at {}{}\n", server->url(), server->open_to_others() ? ", for everybody who reaches this machine" : "");
  std::fflush(stdout);
  for (double pause = kBetweenLooks; !stop;) {
    const Stopwatch waiting;
    while (!stop && waiting.seconds() < pause) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const Stopwatch drawing;
    live.refresh();
    pause = std::max(kBetweenLooks, kShareOfDrawing * drawing.seconds());
  }
}

}  // namespace

void add_watch_command(CLI::App& app) {
  auto flags = std::make_shared<WatchFlags>();  // owned by the callback as well
  auto* command = app.add_subcommand("watch", "Show runs that are under way, side by side, as a page that follows them");
  command->add_option("RUN", flags->runs, "Run directories, as `epipe train --run-dir` makes them")->required();
  command->add_option("--listen", flags->listen, "HOST:PORT of the page; port 0: any free one")->capture_default_str();
  command->callback([flags] { run_watch(*flags); });
}

}  // namespace epipe::cli
