#include "epipe/pipeline/worker_thread.h"

#include <ATen/Parallel.h>

namespace epipe::pipeline {

WorkerThread::WorkerThread(int intra_op_threads) : thread_([this, intra_op_threads] { run(intra_op_threads); }) {}

WorkerThread::~WorkerThread() {
  jobs_.close();
  thread_.join();
}

void WorkerThread::run(int intra_op_threads) {
  at::set_num_threads(intra_op_threads);
  try {
    while (true) {
      jobs_.pop()();
      done_.push(true);
    }
  } catch (const Closed&) {
    // The pipeline is being destroyed.
  }
}

}  // namespace epipe::pipeline
