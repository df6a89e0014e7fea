#include "epipe/pipeline/worker_thread.h"

#include <ATen/Parallel.h>

#include "epipe/boundary/device_stream.h"

namespace epipe::pipeline {

WorkerThread::WorkerThread(int intra_op_threads, torch::Device device)
    : thread_([this, intra_op_threads, device] { run(intra_op_threads, device); }) {}

WorkerThread::~WorkerThread() {
  jobs_.close();
  thread_.join();
}

void WorkerThread::run(int intra_op_threads, torch::Device device) {
  at::set_num_threads(intra_op_threads);
  const boundary::OwnStream stream(device);
  try {
    while (true) {
      jobs_.pop()();
      stream.synchronize();
      done_.push(true);
    }
  } catch (const Closed&) {
    // The pipeline is being destroyed.
  }
}

}  // namespace epipe::pipeline
