#pragma once

#include <torch/types.h>

#include <exception>
#include <functional>
#include <thread>

#include "epipe/base/queue.h"

namespace epipe::pipeline {

// The thread of one worker, with its own number of threads inside an operator and a stream of its own on its device.
class WorkerThread {
 public:
  WorkerThread(int intra_op_threads, torch::Device device);
  ~WorkerThread();
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // Starts a job, which must not throw. One at a time: wait() before the next, until the device is done with it as well. It returns the
  // error that the device found, if any.
  void start(std::function<void()> job) { jobs_.push(std::move(job)); }
  std::exception_ptr wait() { return done_.pop(); }

 private:
  void run(int intra_op_threads, torch::Device device);

  Queue<std::function<void()>> jobs_{1};
  Queue<std::exception_ptr> done_{1};
  std::thread thread_;
};

}  // namespace epipe::pipeline
