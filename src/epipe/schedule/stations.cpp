#include "epipe/schedule/stations.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace epipe::schedule {
namespace {

constexpr double kRounding = 1e-12;  // of a duration: what ends within it ends now

}  // namespace

int Stations::add(int machine) {
  stations_.push_back({machine, {}});
  return static_cast<int>(stations_.size()) - 1;
}

void Stations::give(int station, double work, Done done) {
  auto& jobs = stations_[static_cast<std::size_t>(station)].jobs;
  jobs.push_back({work, jobs.empty() ? now_ : -1, std::move(done)});
}

void Stations::after(double delay, Done done) { timers_.emplace(now_ + delay, Job{0, now_, std::move(done)}); }

void Stations::run() {
  while (advance()) {
  }
}

std::vector<int> Stations::busy_threads() const {
  std::vector<int> busy(cores_.size(), 0);
  for (const Station& station : stations_) {
    if (station.machine != kLink && !station.jobs.empty()) ++busy[static_cast<std::size_t>(station.machine)];
  }
  return busy;
}

double Stations::rate(const Station& station, const std::vector<int>& busy) const {
  if (station.machine == kLink) return 1;
  const auto machine = static_cast<std::size_t>(station.machine);
  return std::min(1.0, cores_[machine] / busy[machine]);
}

// To the next moment at which something is done, and does what follows from it.
bool Stations::advance() {
  const auto busy = busy_threads();
  double wait = timers_.empty() ? std::numeric_limits<double>::infinity() : timers_.begin()->first - now_;
  for (const Station& station : stations_) {
    if (!station.jobs.empty()) wait = std::min(wait, station.jobs.front().left / rate(station, busy));
  }
  if (wait == std::numeric_limits<double>::infinity()) return false;
  const double slack = wait * kRounding;
  now_ += wait;
  std::vector<Job> ended;
  for (Station& station : stations_) {
    if (station.jobs.empty()) continue;
    const double speed = rate(station, busy);
    Job& job = station.jobs.front();
    job.left -= wait * speed;
    if (job.left > slack * speed) continue;
    ended.push_back(std::move(job));
    station.jobs.pop_front();
    if (!station.jobs.empty()) station.jobs.front().begin = now_;
  }
  while (!timers_.empty() && timers_.begin()->first <= now_ + slack) {
    ended.push_back(std::move(timers_.begin()->second));
    timers_.erase(timers_.begin());
  }
  for (const Job& job : ended) job.done(job.begin, now_);
  return true;
}

}  // namespace epipe::schedule
