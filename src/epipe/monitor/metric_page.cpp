#include "epipe/monitor/metric_page.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <sstream>

#include "epipe/base/file.h"

namespace epipe::monitor {
namespace {

double seconds_of(const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); }

double unix_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// The 22nd field of stat is the process's start in ticks since boot. The name before it may contain blanks and brackets.
double start_time() {
  std::ifstream stat("/proc/self/stat");
  std::string text;
  std::getline(stat, text);
  std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string word;
  for (int field = 3; field < 22; ++field) rest >> word;
  double ticks = 0;
  double up = 0;
  std::ifstream uptime("/proc/uptime");
  if (!(rest >> ticks) || !(uptime >> up)) return 0;
  return unix_seconds() - up + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0;
  statm >> pages >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

// Names of the run's files that Prometheus's conventions want otherwise: base units, no abbreviations.
struct Renamed {
  std::string_view metric;
  std::string_view name;
  std::string_view help;
  double factor;
};
constexpr std::array<Renamed, 2> kRenamed = {
    {{"bits_per_value", "bytes_per_value", "wire_bytes / values", 1.0 / 8},
     {"rel_error", "relative_error_ratio", "error_energy / signal_energy, where it was measured", 1}}};

const Renamed* renamed(const Metric& metric) {
  const auto found = std::find_if(kRenamed.begin(), kRenamed.end(), [&](const Renamed& one) { return one.metric == metric.name; });
  return found == kRenamed.end() ? nullptr : &*found;
}

}  // namespace

std::string exported_name(std::string_view prefix, const Metric& metric) {
  std::string name = fmt::format("{}{}", prefix, metric.name);
  if (const Renamed* const other = renamed(metric)) return fmt::format("{}{}", prefix, other->name);
  if (metric.unit == MetricUnit::kSeconds && !name.ends_with("_seconds")) name += "_seconds";
  if (metric.unit == MetricUnit::kBytes && !name.ends_with("_bytes")) name += "_bytes";
  if (metric.over == Over::kSum) name += "_total";
  return name;
}

void MetricPage::add(Kind kind, std::string_view name, std::string_view help, double value, Labels labels) {
  auto found = std::find_if(families_.begin(), families_.end(), [&](const Family& family) { return family.name == name; });
  if (found == families_.end()) found = families_.insert(found, Family{std::string(name), std::string(help), kind, {}});
  found->samples.push_back({std::move(labels), value});
}

void MetricPage::counter(std::string_view name, std::string_view help, double value, Labels labels) {
  add(Kind::kCounter, name, help, value, std::move(labels));
}

void MetricPage::gauge(std::string_view name, std::string_view help, double value, Labels labels) {
  add(Kind::kGauge, name, help, value, std::move(labels));
}

void MetricPage::declared(std::string_view prefix, const Metric& metric, double value, Labels labels) {
  const Renamed* const other = renamed(metric);
  add(metric.over == Over::kSum ? Kind::kCounter : Kind::kGauge, exported_name(prefix, metric), other ? other->help : metric.help,
      other ? other->factor * value : value, std::move(labels));
}

void add_process(MetricPage& page, const Labels& build) {
  static const double started = start_time();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  page.gauge("epipe_build_info", "1; its labels say what runs", 1, build);
  page.counter("process_cpu_seconds_total", "user and system time of this process",
               seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime));
  page.gauge("process_start_time_seconds", "when the process began, in seconds since 1970", started);
  page.gauge("process_resident_memory_bytes", "memory that the process holds", resident_bytes());
  page.gauge("process_open_fds", "open file descriptors", static_cast<double>(list_folder("/proc/self/fd").size()));
  page.gauge("process_max_fds", "file descriptors that it may open", static_cast<double>(files.rlim_cur));
}

}  // namespace epipe::monitor
