#include "epipe/planner/bound.h"

#include <algorithm>

namespace epipe::planner {
namespace {

using schedule::Direction;

// What does one thing at a time: its work for a micro-batch, and what of the road lies before its first and after its last part.
struct Busy {
  double work = 0;
  double before = 0;
  double until = 0;  // the road up to the end of its last part
};

// The road of one micro-batch, from the first forward to the last backward.
class Road {
 public:
  Road(const Inputs& inputs, std::size_t stages, bool splits_backward)
      : inputs_(inputs),
        splits_backward_(splits_backward),
        workers_(inputs.workers.size()),
        threads_(4 * stages),
        links_(workers_.size() * workers_.size()),
        machines_(inputs.cores.size(), 0) {}

  void forward(int worker, double seconds) { compute(worker, seconds, seconds); }
  void backward(int worker, double seconds) { compute(worker, seconds, splits_backward_ ? seconds / 2 : seconds); }

  void cross(const Crossing& c, int from, int to) {
    if (from == to || c.bytes == 0) return;
    thread(from, c.encode);
    const double carried = std::max({c.transfer, c.carry_out, c.carry_in});
    use(links_[static_cast<std::size_t>(from) * workers_.size() + static_cast<std::size_t>(to)], carried);
    work_on(from, c.carry_out);
    work_on(to, c.carry_in);
    length_ += carried + inputs_.link.delay;
    thread(to, c.decode);
  }

  double least(int chunks) const {
    double least = 0;
    for (const auto* all : {&workers_, &threads_, &links_}) {
      for (const Busy& busy : *all) {
        const double after = splits_backward_ ? 0 : length_ - busy.until;
        least = std::max(least, busy.before + chunks * busy.work + after);
      }
    }
    for (std::size_t m = 0; m < machines_.size(); ++m) least = std::max(least, chunks * machines_[m] / inputs_.cores[m]);
    return std::max(least, length_);
  }

 private:
  void compute(int worker, double seconds, double on_the_road) {
    use(workers_[static_cast<std::size_t>(worker)], seconds);
    work_on(worker, seconds);
    length_ += on_the_road;
  }
  void use(Busy& busy, double seconds) {
    if (busy.work == 0) busy.before = length_;
    busy.work += seconds;
    busy.until = length_ + seconds;
  }
  void work_on(int worker, double seconds) {
    machines_[static_cast<std::size_t>(inputs_.workers[static_cast<std::size_t>(worker)].machine)] += seconds;
  }
  void thread(int worker, double seconds) {  // an encoder or a decoder: each passes once
    use(threads_[next_thread_++], seconds);
    work_on(worker, seconds);
    length_ += seconds;
  }

  const Inputs& inputs_;
  const bool splits_backward_;
  std::vector<Busy> workers_;
  std::vector<Busy> threads_;
  std::vector<Busy> links_;
  std::vector<double> machines_;  // seconds of a core
  std::size_t next_thread_ = 0;
  double length_ = 0;
};

}  // namespace

double least_seconds(const Inputs& inputs, const StageCosts& costs, int chunks, bool splits_backward) {
  const std::size_t stages = costs.place.size();
  Road road(inputs, stages, splits_backward);
  for (std::size_t j = 0; j < stages; ++j) {
    if (j > 0) road.cross(costs.crossing(Direction::kForward, j - 1), costs.place[j - 1], costs.place[j]);
    road.forward(costs.place[j], costs.forward[j]);
  }
  for (std::size_t j = stages; j-- > 0;) {
    road.backward(costs.place[j], costs.backward[j]);
    if (j > 0) road.cross(costs.crossing(Direction::kBackward, j - 1), costs.place[j], costs.place[j - 1]);
  }
  return road.least(chunks);
}

}  // namespace epipe::planner
