// The files of a run and of an experiment: any text is what they say or a named error, and what they say is drawn. The first byte says
// which reader gets the rest.
#include <cstdlib>

#include "epipe/experiment/csv.h"
#include "epipe/report/inspection.h"
#include "epipe/report/metrics.h"
#include "epipe/report/page.h"
#include "epipe/report/trace.h"

namespace {

using namespace epipe::report;

template <typename T>
bool is_read(const epipe::Result<T>& result) {
  if (!result && result.error().message.empty()) std::abort();
  return result.ok();
}

void draw(RunData run) {
  run.name = "run";
  if (page({std::move(run)}).find("</html>") == std::string::npos) std::abort();
}

void check_metrics(std::string_view text) {
  auto metrics = parse_metrics(text, "metrics.jsonl");
  if (!is_read(metrics)) return;
  RunData run;
  run.steps = std::move(metrics.value().steps);
  run.epochs = std::move(metrics.value().epochs);
  run.audits = std::move(metrics.value().audits);
  run.cut_metrics = std::move(metrics.value().cut_metrics);
  run.worker_metrics = std::move(metrics.value().worker_metrics);
  draw(std::move(run));
}

void check_trace(std::string_view text) {
  auto trace = parse_trace(text, "trace.json");
  if (!is_read(trace)) return;
  RunData run;
  run.trace = std::move(trace.value().trace);
  draw(std::move(run));
}

void check_inspection(std::string_view text) {
  auto cuts = parse_inspection(text, "inspect.json");
  if (!is_read(cuts)) return;
  RunData run;
  run.inspection = std::move(cuts.value());
  draw(std::move(run));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: check_metrics(text); break;
    case 1: check_trace(text); break;
    case 2: check_inspection(text); break;
    case 3: is_read(epipe::experiment::parse_csv(text, "runs.csv")); break;
  }
  return 0;
}
