// epipe report: one page about one or several runs
#include <fmt/format.h>

#include <span>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"
#include "epipe/report/page.h"

namespace epipe::cli {
namespace {

constexpr const char* kComparison = "comparison.html";  // of several runs, in the current folder, because it belongs to none of them

struct ReportFlags {
  std::vector<std::string> runs;
  std::string output;
};

void run_report(const ReportFlags& flags) {
  std::vector<report::RunData> runs;
  for (const std::string& folder : flags.runs) runs.push_back(value_or_fail(report::read_run(folder)));
  const std::string own = runs.size() == 1 ? flags.runs[0] + "/report.html" : kComparison;
  const std::string output = flags.output.empty() ? own : flags.output;
  const std::string page = report::page(std::move(runs));
  value_or_fail(write_file(output, {std::as_bytes(std::span(page))}));
  fmt::print("wrote {}\n", output);
}

}  // namespace

void add_report_command(CLI::App& app) {
  auto flags = std::make_shared<ReportFlags>();  // owned by the callback as well
  auto* command = app.add_subcommand("report", "Show one run, or several side by side, as one HTML page");
  command->add_option("RUN", flags->runs, "Run directories, as `epipe train --run-dir` leaves them")->required();
  command->add_option("-o,--output", flags->output,
                      "Where to write the page; otherwise report.html in the run's directory, for several runs comparison.html here");
  command->callback([flags] { run_report(*flags); });
}

}  // namespace epipe::cli
