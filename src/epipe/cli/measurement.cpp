#include "epipe/cli/measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "epipe/cli/command.h"

namespace epipe::cli {

nlohmann::json to_json(const std::string& spec, const codec::Measurement& m) {
  nlohmann::json line = {{"codec", spec},
                         {"values", m.values},
                         {"wire_bytes", m.wire_bytes},
                         {"bits_per_value", m.bits_per_value},
                         {"encode_MBps", m.encode_MBps},
                         {"decode_MBps", m.decode_MBps},
                         {"memcpy_MBps", m.memcpy_MBps}};
  line["rel_error"] = std::isfinite(m.rel_error) ? nlohmann::json(m.rel_error) : nlohmann::json(nullptr);
  return line;
}

void MeasurementTable::add(const std::string& tensor, const std::string& spec, const codec::Measurement& m) {
  const auto ratio = [&](double rate) { return m.memcpy_MBps > 0 ? fmt::format("{:.3f}", rate / m.memcpy_MBps) : std::string("-"); };
  rows_.push_back({tensor, spec, fmt::format("{:.3f}", m.bits_per_value), fmt::format("{:.2e}", m.rel_error),
                   fmt::format("{:.0f}", m.encode_MBps), fmt::format("{:.0f}", m.decode_MBps), ratio(m.encode_MBps), ratio(m.decode_MBps)});
}

void MeasurementTable::print() const {
  std::vector<std::vector<std::string>> all = {
      {"tensor", "codec", "bits/value", "rel. error", "encode MB/s", "decode MB/s", "enc/memcpy", "dec/memcpy"}};
  all.insert(all.end(), rows_.begin(), rows_.end());
  std::vector<std::size_t> widths(all[0].size());
  for (const auto& row : all) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  for (const auto& row : all) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += c < 2 ? fmt::format("{:<{}}  ", row[c], widths[c]) : fmt::format("{:>{}}  ", row[c], widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

std::unique_ptr<codec::Codec> codec_from_flag(const std::string& spec, const codec::CodecOptions& options, std::string_view flag) {
  auto codec = codec::make_codec(spec, options);
  if (!codec) throw UsageError(fmt::format("{}: {}", flag, codec.error().message));
  return std::move(codec).value();
}

}  // namespace epipe::cli
