// What a plan is made of: any text is tables, machines, costs or a named error. The first byte says which reader gets the rest.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"
#include "epipe/cli/costs_file.h"
#include "epipe/planner/inputs_json.h"
#include "epipe/planner/parse.h"
#include "epipe/schedule/placement.h"
#include "epipe/train/schedule_costs.h"
#include "support/temp_folder.h"

namespace {

using namespace epipe;

template <typename T>
void check_planned(const Result<T>& result) {
  if (!result && result.error().message.empty()) std::abort();
}

void check_inputs(std::string_view text) {
  const auto object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto inputs = planner::inputs_from_json(object);
  check_planned(inputs);
  if (!inputs) return;
  const std::string written = planner::to_json(inputs.value()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto again = planner::inputs_from_json(nlohmann::json::parse(written));
  if (!again || planner::to_json(again.value()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) != written) std::abort();
}

void check_costs_file(std::string_view text) {
  static const testing::TempFolder folder;
  const std::string path = folder.file("costs.json");
  if (!write_file(path, {std::as_bytes(std::span(text))})) std::abort();
  for (const char* const place : {"0,1", "0,1,0"}) {
    try {
      (void)cli::read_costs_file(path, schedule::parse_placement(place).value());
    } catch (const cli::UsageError& error) {
      if (std::string_view(error.what()).empty()) std::abort();
    }
  }
}

// Of the text in a checkpoint's fingerprint: costs that were measured for a schedule.
void check_costs(std::string_view text) {
  try {
    (void)train::parse_costs(text, 3);
  } catch (const std::invalid_argument& error) {
    if (std::string_view(error.what()).empty()) std::abort();
  }
}

void check_placement(std::string_view text) {
  const auto placement = schedule::parse_placement(text);
  check_planned(placement);
  if (placement && schedule::parse_placement(to_string(placement.value())).value() != placement.value()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0: check_inputs(text); break;
    case 1: check_costs_file(text); break;
    case 2: check_costs(text); break;
    case 3: check_placement(text); break;
    case 4: check_planned(planner::parse_workers(text)); break;
    case 5: check_planned(planner::parse_link(text)); break;
  }
  return 0;
}
