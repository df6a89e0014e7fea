#include "epipe/report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "epipe/report/fields.h"

namespace epipe::report {
namespace {

using nlohmann::json;

// Collects events while the text is parsed, so that no tree of the whole trace is built.
class Gatherer {
 public:
  void add(const json& event) {
    Fields fields(event);
    const std::string phase = fields.text("ph");
    const auto track = std::pair(fields.count("pid"), fields.count("tid"));
    const json args = event.value("args", json::object());
    Fields arguments(args);
    if (phase == "M" && fields.text("name") == "thread_name") names_[track] = arguments.text("name");
    if (phase == "X") add_span(fields, arguments, track);
    if (problem_.empty()) problem_ = fields.problem();
    if (problem_.empty()) problem_ = arguments.problem();
    ++events_;
  }

  const std::string& problem() const { return problem_; }
  std::size_t events() const { return events_; }

  Trace trace() && {
    Trace trace;
    std::map<Id, std::size_t> index;
    for (const auto& [id, name] : names_) {
      index[id] = trace.tracks.size();
      trace.tracks.push_back({id.first, id.second, name.empty() ? fmt::format("thread {}", id.second) : name});
    }
    for (auto& [id, span] : spans_) {
      span.track = index[id];
      trace.spans.push_back(std::move(span));
    }
    // Of two that start together the longer comes first: the shorter one lies inside.
    std::stable_sort(trace.spans.begin(), trace.spans.end(), [](const Span& a, const Span& b) {
      return a.start_us != b.start_us ? a.start_us < b.start_us : a.duration_us > b.duration_us;
    });
    return trace;
  }

 private:
  using Id = std::pair<std::int64_t, std::int64_t>;

  void add_span(Fields& fields, Fields& arguments, const Id& track) {
    const double step = arguments.number("step");
    Span span{fields.text("name"), activity_of(fields.text("cat")), fields.number("ts"), fields.number("dur"), 0, -1};
    if (step >= 0 && step < 1e15) span.step = static_cast<std::int64_t>(step);
    if (!(span.duration_us >= 0) || !(span.start_us >= 0)) return;  // without a time there is nothing to draw
    names_.try_emplace(track);
    spans_.emplace_back(track, std::move(span));
  }

  std::map<Id, std::string> names_;  // every track, named or not
  std::vector<std::pair<Id, Span>> spans_;
  std::string problem_;
  std::size_t events_ = 0;
};

}  // namespace

Result<ReadTrace> parse_trace(std::string_view text, std::string_view file) {
  Gatherer gatherer;
  const auto take_event = [&](int depth, json::parse_event_t what, json& value) {
    if (what != json::parse_event_t::object_end || depth < 1 || depth > 2 || !value.contains("ph")) return true;
    if (gatherer.problem().empty()) gatherer.add(value);
    return false;
  };
  bool complete = true;
  try {
    const json rest = json::parse(text, take_event);
    if (!rest.is_structured())
      return Error{ErrorCode::kBadFile, fmt::format("{}: expected an object or a list, got {}", file, rest.type_name())};
  } catch (const json::exception& error) {
    const auto* const bad_text = dynamic_cast<const json::parse_error*>(&error);
    complete = false;
    if (bad_text == nullptr || bad_text->byte < text.size()) return Error{ErrorCode::kBadFile, fmt::format("{}: {}", file, error.what())};
  }
  if (!gatherer.problem().empty()) {
    return Error{ErrorCode::kBadFile, fmt::format("{}, event {}: {}", file, gatherer.events(), gatherer.problem())};
  }
  return ReadTrace{std::move(gatherer).trace(), complete};
}

}  // namespace epipe::report
