#include "epipe/planner/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

namespace epipe::planner {
namespace {

Error bad_spec(std::string text) { return {ErrorCode::kBadSpec, std::move(text)}; }

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// "20ms" -> 20, "ms"
struct Quantity {
  double number = 0;
  std::string unit;
};

std::optional<Quantity> parse_quantity(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const bool is_number = !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '.');
  if (!is_number || !std::isfinite(number)) return std::nullopt;
  return Quantity{number, end};
}

// 10^3 for k and K, and so on; 1 where there is none.
double take_prefix(std::string& unit) {
  constexpr std::string_view kPrefixes = "kMGT";
  if (unit.empty()) return 1;
  const char first = unit[0] == 'K' ? 'k' : unit[0];
  const std::size_t found = kPrefixes.find(first);
  if (found == std::string_view::npos) return 1;
  unit.erase(0, 1);
  return std::pow(1000.0, static_cast<double>(found + 1));
}

bool is_device(std::string_view text) {
  if (text == "cpu" || text == "cuda") return true;
  if (!text.starts_with("cuda:") || text.size() == 5) return false;
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  return std::all_of(text.begin() + 5, text.end(), digit);
}

bool is_name(std::string_view text) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; };
  return !text.empty() && std::all_of(text.begin(), text.end(), fits);
}

bool is_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size() || text.size() - colon > 6) return false;
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(colon) + 1, text.end(), digit);
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("localhost:") || address.starts_with("[::1]:");
}

Result<void> set_attribute(WorkerSpec& worker, const std::string& text) {
  if (text == "here") {
    worker.here = true;
    return {};
  }
  auto quantity = parse_quantity(text);
  if (quantity && quantity->number > 0) {
    if (quantity->unit == "cores" || quantity->unit == "core") {
      worker.cores = quantity->number;
      return {};
    }
    const double value = quantity->number * take_prefix(quantity->unit);
    if (quantity->unit == "F" || quantity->unit == "FLOPS") {
      worker.flops = value;
      return {};
    }
    if (quantity->unit == "B") {
      worker.memory = value;
      return {};
    }
  }
  return bad_spec(fmt::format("worker {}: expected a speed such as 200GF, memory such as 8GB, cores such as 4cores, or here, got \"{}\"",
                              worker.name, text));
}

Result<WorkerSpec> parse_worker(const std::string& text, std::size_t index) {
  const std::size_t at = std::min(text.find('@'), text.size());
  std::string where = text.substr(0, at);
  WorkerSpec worker{fmt::format("worker {}", index), ""};
  const std::size_t colon = where.find(':');
  if (!is_device(where) && colon != std::string::npos) {
    const std::string rest = where.substr(colon + 1);
    if (is_name(where.substr(0, colon)) && (is_device(rest) || is_address(rest))) {
      worker.name = where.substr(0, colon);
      where = rest;
    }
  }
  if (is_device(where)) {
    worker.device = where;
  } else if (is_address(where)) {
    worker.address = where;
    worker.here = is_loopback(where);
    if (worker.name.starts_with("worker ")) worker.name = "server";
  } else {
    return bad_spec(fmt::format("expected a worker such as client:cpu, cuda:0 or server:host:7000@200GF/8GB, got \"{}\"", text));
  }
  if (at == text.size()) return worker;
  for (const std::string& attribute : parts_of(std::string_view(text).substr(at + 1), '/')) EPIPE_TRY(set_attribute(worker, attribute));
  return worker;
}

Result<double> parse_rate(const std::string& name, const std::string& text) {
  auto quantity = parse_quantity(text);
  if (quantity) {
    const double rate = quantity->number * take_prefix(quantity->unit);
    const bool known = quantity->unit.empty() || quantity->unit == "bit" || quantity->unit == "bit/s" || quantity->unit == "bps";
    if (known && rate > 0) return rate;
    if (known) return bad_spec(fmt::format("a link of rate 0 carries nothing: expected {} of more than 0 bit/s, got {}", name, text));
  }
  return bad_spec(fmt::format("expected bits per second such as {}=10M, got \"{}\"", name, text));
}

Result<double> parse_delay(const std::string& text) {
  const auto quantity = parse_quantity(text);
  if (quantity) {
    if (quantity->unit == "s") return quantity->number;
    if (quantity->unit == "ms") return quantity->number / 1e3;
    if (quantity->unit == "us") return quantity->number / 1e6;
    if (quantity->number == 0 && quantity->unit.empty()) return 0.0;
  }
  return bad_spec(fmt::format("expected a time such as delay=20ms, got \"{}\"", text));
}

}  // namespace

Result<std::vector<WorkerSpec>> parse_workers(std::string_view text) {
  std::vector<WorkerSpec> workers;
  for (const std::string& part : parts_of(text, ',')) {
    auto worker = parse_worker(part, workers.size());
    if (!worker) return worker.error();
    const auto same = [&](const WorkerSpec& other) { return other.name == worker.value().name; };
    if (std::any_of(workers.begin(), workers.end(), same)) worker.value().name += fmt::format(" {}", workers.size());
    workers.push_back(std::move(worker).value());
  }
  if (workers.front().is_server()) {
    return bad_spec(fmt::format("the first worker has the data and is on this machine: expected client:cpu or the like, got {}",
                                workers.front().address));
  }
  return workers;
}

Result<LinkSpec> parse_link(std::string_view text) {
  LinkSpec link;
  for (const std::string& part : parts_of(text, ',')) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, equals);
    const std::string value = equals < part.size() ? part.substr(equals + 1) : "";
    if (name != "up" && name != "down" && name != "rate" && name != "delay") {
      return bad_spec(fmt::format("expected up=RATE, down=RATE, rate=RATE (both) or delay=TIME, got \"{}\"", part));
    }
    const auto number = name == "delay" ? parse_delay(value) : parse_rate(name, value);
    if (!number) return number.error();
    for (const auto& [field, of] : {std::pair(&link.up, "up"), std::pair(&link.down, "down"), std::pair(&link.delay, "delay")}) {
      if (name != of && (name != "rate" || field == &link.delay)) continue;
      if (*field) return bad_spec(fmt::format("{} is given twice, the second time by {}: leave one out", of, part));
      *field = number.value();
    }
  }
  return link;
}

}  // namespace epipe::planner
