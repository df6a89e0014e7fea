#include "epipe/report/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "epipe/report/fields.h"

namespace epipe::report {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostIds = 1 << 20;

Result<int> parse_id(Fields& fields, std::string_view key) {
  const std::int64_t id = fields.count(key);
  if (id < kMostIds) return static_cast<int>(id);
  return Error{ErrorCode::kBadFile, fmt::format(R"(expected "{}" below {}, got {})", key, kMostIds, id)};
}

// Every number of an object, declared or not, by the index of its name. The number of names per file is limited: each costs a row.
constexpr std::size_t kMostNames = 200;

std::vector<double> numbers_of(const json& object, std::initializer_list<std::string_view> ids, std::vector<std::string>& names) {
  std::vector<double> values;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_number() || std::find(ids.begin(), ids.end(), key) != ids.end()) continue;
    auto at = static_cast<std::size_t>(std::find(names.begin(), names.end(), key) - names.begin());
    if (at == names.size() && names.size() == kMostNames) continue;
    if (at == names.size()) names.push_back(key);
    if (values.size() <= at) values.resize(at + 1, kUnknown);
    values[at] = value.get<double>();
  }
  return values;
}

Result<CutStep> parse_cut_step(const json& object, std::vector<std::string>& names) {
  Fields fields(object);
  const auto id = parse_id(fields, "cut");
  if (!id) return id.error();
  const std::string direction = fields.text("direction");
  CutStep cut{id.value(),
              direction == "backward" ? Direction::kBackward : Direction::kForward,
              fields.text("codec"),
              fields.number("wire_bytes"),
              fields.number("values"),
              fields.number("bits_per_value"),
              fields.number("rel_error"),
              numbers_of(object, {"cut"}, names)};
  if (!fields.problem().empty()) return Error{ErrorCode::kBadFile, fields.problem()};
  if (direction == "forward" || direction == "backward") return cut;
  return Error{ErrorCode::kBadFile, fmt::format(R"(expected "direction" to be forward or backward, got "{}")", direction)};
}

Result<WorkerStep> parse_worker(const json& object, std::vector<std::string>& names) {
  Fields fields(object);
  const auto id = parse_id(fields, "worker");
  if (!id) return id.error();
  WorkerStep worker;
  worker.worker = id.value();
  for (std::size_t a = 0; a < kOther; ++a) {
    const double seconds = fields.number(kActivities[a]);
    if (seconds > 0) worker.seconds[a] = seconds;
  }
  worker.peak_memory_bytes = fields.number("peak_memory_bytes");
  worker.values_of = numbers_of(object, {"worker", "replica"}, names);
  if (!fields.problem().empty()) return Error{ErrorCode::kBadFile, fields.problem()};
  return worker;
}

template <typename T, typename Parse>
Result<void> parse_list(const json& list, std::vector<T>& out, std::vector<std::string>& names, Parse&& parse) {
  for (const json& object : list) {
    auto item = parse(object, names);
    if (!item) return item.error();
    out.push_back(std::move(item).value());
  }
  return {};
}

Result<Step> parse_step(const json& object, Metrics& metrics) {
  Fields fields(object);
  Step step{fields.count("epoch"),
            fields.count("step"),
            fields.number("loss"),
            fields.number("accuracy"),
            fields.number("samples"),
            fields.number("seconds"),
            {},
            {}};
  EPIPE_TRY(parse_list(fields.list("cuts"), step.cuts, metrics.cut_metrics, parse_cut_step));
  EPIPE_TRY(parse_list(fields.list("workers"), step.workers, metrics.worker_metrics, parse_worker));
  if (!fields.problem().empty()) return Error{ErrorCode::kBadFile, fields.problem()};
  return step;
}

Result<Epoch> parse_epoch(const json& object) {
  Fields fields(object);
  const Epoch epoch{fields.count("epoch"),         fields.number("loss"),    fields.number("accuracy"),     fields.number("val_loss"),
                    fields.number("val_accuracy"), fields.number("seconds"), fields.number("samples_per_s")};
  if (!fields.problem().empty()) return Error{ErrorCode::kBadFile, fields.problem()};
  return epoch;
}

Result<Audit::Cut> parse_audited_cut(const json& object, std::vector<std::string>&) {
  Fields fields(object);
  const auto id = parse_id(fields, "cut");
  if (!id) return id.error();
  const bool backward = fields.text("direction") == "backward";
  const Audit::Cut cut{id.value(), backward ? Direction::kBackward : Direction::kForward, fields.number("harm"),
                       fields.number("loss_added")};
  if (!fields.problem().empty()) return Error{ErrorCode::kBadFile, fields.problem()};
  return cut;
}

Result<Audit> parse_audit(const json& object) {
  Fields fields(object);
  Audit audit{fields.count("epoch"), fields.count("step"), fields.number("harm"), fields.number("bound"),
              fields.number("loss_added"), fields.number("loss_bound"), {}};
  std::vector<std::string> names;
  EPIPE_TRY(parse_list(fields.list("cuts"), audit.cuts, names, parse_audited_cut));
  if (!fields.problem().empty()) return Error{ErrorCode::kBadFile, fields.problem()};
  return audit;
}

Result<RateChange> parse_rate_change(const json& object) {
  Fields fields(object);
  RateChange change{fields.count("epoch"), fields.count("step")};
  if (object.contains("up_MBps")) change.up_MBps = fields.number("up_MBps");
  if (object.contains("down_MBps")) change.down_MBps = fields.number("down_MBps");
  if (!fields.problem().empty()) return Error{ErrorCode::kBadFile, fields.problem()};
  return change;
}

// The later line of a step counts, and what was written of steps after it does not.
template <typename Line>
void add_in_order(std::vector<Line>& lines, Line line) {
  const auto place = [](const Line& one) { return std::pair(one.epoch, one.step); };
  while (!lines.empty() && place(lines.back()) >= place(line)) lines.pop_back();
  lines.push_back(std::move(line));
}

void add_epoch(Metrics& metrics, const Epoch& epoch) {
  while (!metrics.epochs.empty() && metrics.epochs.back().epoch >= epoch.epoch) metrics.epochs.pop_back();
  metrics.epochs.push_back(epoch);
}

Result<void> add_line(Metrics& metrics, const json& line) {
  Fields fields(line);
  const std::string kind = fields.text("kind");
  if (!fields.problem().empty()) return Error{ErrorCode::kBadFile, fields.problem()};
  if (kind == "step") {
    auto step = parse_step(line, metrics);
    if (!step) return step.error();
    add_in_order(metrics.steps, std::move(step).value());
  } else if (kind == "epoch") {
    const auto epoch = parse_epoch(line);
    if (!epoch) return epoch.error();
    add_epoch(metrics, epoch.value());
  } else if (kind == "audit") {
    auto audit = parse_audit(line);
    if (!audit) return audit.error();
    add_in_order(metrics.audits, std::move(audit).value());
  } else if (kind == "rates") {
    const auto change = parse_rate_change(line);
    if (!change) return change.error();
    add_in_order(metrics.rate_changes, change.value());
  }
  return {};
}

}  // namespace

Result<void> append_metrics(Metrics& metrics, std::string_view lines, std::string_view file, std::size_t first_line) {
  for (std::size_t number = first_line; !lines.empty(); ++number) {
    const std::size_t end = lines.find('\n');
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const json parsed = json::parse(line, nullptr, false);
    const auto added = parsed.is_discarded() ? Result<void>(Error{ErrorCode::kBadFile, "expected one JSON object, got something else"})
                                             : add_line(metrics, parsed);
    if (!added) return Error{ErrorCode::kBadFile, fmt::format("{}, line {}: {}", file, number, added.error().message)};
  }
  return {};
}

std::vector<std::string> notes_on(const std::vector<Step>& steps) {
  const auto is_lost = [](const Step& step) { return !std::isfinite(step.loss); };
  const auto lost = std::count_if(steps.begin(), steps.end(), is_lost);
  if (lost == 0) return {};
  return {fmt::format("The loss of {} of {} steps is not a number, first at step {}.", lost, steps.size(),
                      std::find_if(steps.begin(), steps.end(), is_lost)->step)};
}

Result<Metrics> parse_metrics(std::string_view text, std::string_view file) {
  const std::size_t whole = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
  Metrics metrics;
  EPIPE_TRY(append_metrics(metrics, text.substr(0, whole), file, 1));
  const std::string_view last = text.substr(whole);
  const auto number = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  if (json::accept(last)) {
    EPIPE_TRY(append_metrics(metrics, last, file, number));
  } else if (last.find_first_not_of(" \t\r") != std::string_view::npos) {
    metrics.notes.push_back(fmt::format("{} ends in the middle of line {}: the run was stopped while writing it.", file, number));
  }
  for (std::string& note : notes_on(metrics.steps)) metrics.notes.push_back(std::move(note));
  return metrics;
}

}  // namespace epipe::report
