#include "epipe/report/inspection.h"

#include <fmt/format.h>

#include <cmath>

#include "epipe/report/fields.h"

namespace epipe::report {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBins = 4096;
constexpr std::size_t kMostCuts = 4096;

Error bad(std::string message) { return {ErrorCode::kBadFile, std::move(message)}; }

Result<Bins> parse_bins(Fields& fields, const char* low, const char* width, const char* counts) {
  Bins bins{fields.number(low), fields.number(width), {}};
  const json& list = fields.list(counts);
  if (list.size() < 3 || list.size() > kMostBins)
    return bad(fmt::format(R"(expected "{}" to have 3 to {} counts, got {})", counts, kMostBins, list.size()));
  for (const json& count : list) {
    if (!count.is_number() || count < 0) return bad(fmt::format(R"(expected "{}" to be a list of counts)", counts));
    bins.counts.push_back(count.get<double>());
  }
  if (!std::isfinite(bins.low) || !(bins.width > 0)) return bad(fmt::format(R"(expected "{}" above 0)", width));
  return bins;
}

Result<InspectedCut> parse_inspected_cut(const json& object) {
  Fields fields(object);
  InspectedCut cut;
  const std::int64_t id = fields.count("cut");
  const std::string direction = fields.text("direction");
  cut.direction = direction == "backward" ? Direction::kBackward : Direction::kForward;
  cut.layer = fields.text("layer");
  cut.values = fields.number("values");
  cut.zeros = fields.number("zeros");
  cut.min = fields.number("min");
  cut.max = fields.number("max");
  cut.mean = fields.number("mean");
  cut.deviation = fields.number("std");
  cut.kurtosis = fields.number("kurtosis");
  for (const json& codec : fields.list("codecs")) {
    Fields of(codec);
    cut.codecs.push_back({of.text("codec"), of.number("bits_per_value"), of.number("rel_error")});
    if (!of.problem().empty()) return bad(of.problem());
  }
  auto values = parse_bins(fields, "histogram_low", "histogram_width", "histogram");
  if (!values) return values.error();
  auto magnitudes = parse_bins(fields, "log2_low", "log2_width", "log2_histogram");
  if (!magnitudes) return magnitudes.error();
  if (!fields.problem().empty()) return bad(fields.problem());
  if (id >= static_cast<std::int64_t>(kMostCuts)) return bad(fmt::format(R"(expected "cut" below {}, got {})", kMostCuts, id));
  if (direction != "forward" && direction != "backward")
    return bad(fmt::format(R"(expected "direction" to be forward or backward, got "{}")", direction));
  cut.cut = static_cast<int>(id);
  cut.histogram = std::move(values).value();
  cut.log2_histogram = std::move(magnitudes).value();
  return cut;
}

}  // namespace

Result<std::vector<InspectedCut>> parse_inspection(std::string_view text, std::string_view file) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  Fields fields(object);
  std::vector<InspectedCut> cuts;
  for (const json& item : fields.list("cuts")) {
    auto cut = parse_inspected_cut(item);
    if (!cut) return bad(fmt::format("{}: {}", file, cut.error().message));
    cuts.push_back(std::move(cut).value());
    if (cuts.size() > kMostCuts) return bad(fmt::format("{}: more than {} cuts", file, kMostCuts));
  }
  if (!fields.problem().empty()) return bad(fmt::format("{}: {}", file, fields.problem()));
  return cuts;
}

}  // namespace epipe::report
