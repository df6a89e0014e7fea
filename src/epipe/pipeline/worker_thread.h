#pragma once

#include <functional>
#include <thread>

#include "epipe/base/queue.h"

namespace epipe::pipeline {

// The thread of one worker, with its own number of threads inside an operator.
class WorkerThread {
 public:
  explicit WorkerThread(int intra_op_threads);
  ~WorkerThread();
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // Starts a job, which must not throw. One at a time: wait() before the next.
  void start(std::function<void()> job) { jobs_.push(std::move(job)); }
  void wait() { done_.pop(); }

 private:
  void run(int intra_op_threads);

  Queue<std::function<void()>> jobs_{1};
  Queue<bool> done_{1};
  std::thread thread_;
};

}  // namespace epipe::pipeline
