#pragma once

#include <deque>
#include <functional>
#include <map>
#include <vector>

namespace epipe::schedule {

// Things that do one job at a time, in the order they were given: threads, which share the cores of their machine evenly when more are
// busy than it has, and links, which nobody slows.
class Stations {
 public:
  using Done = std::function<void(double begin, double end)>;
  static constexpr int kLink = -1;

  explicit Stations(std::vector<double> cores) : cores_(std::move(cores)) {}

  int add(int machine);  // or kLink; returns the station
  void give(int station, double work, Done done);
  void after(double delay, Done done);  // (now, then)
  // Until nothing is left to do; jobs may give others when they are done.
  void run();
  double now() const { return now_; }

 private:
  struct Job {
    double left = 0;
    double begin = -1;  // not yet begun
    Done done;
  };
  struct Station {
    int machine = kLink;
    std::deque<Job> jobs;  // the first is under way
  };
  double rate(const Station& station, const std::vector<int>& busy) const;
  std::vector<int> busy_threads() const;
  bool advance();

  std::vector<double> cores_;  // by machine
  std::vector<Station> stations_;
  std::multimap<double, Job> timers_;  // by when
  double now_ = 0;
};

}  // namespace epipe::schedule
