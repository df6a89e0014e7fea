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

namespace {

std::exception_ptr error_of(const boundary::OwnStream& stream) {
  try {
    stream.synchronize();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

void WorkerThread::run(int intra_op_threads, torch::Device device) {
  at::set_num_threads(intra_op_threads);
  const boundary::OwnStream stream(device);
  try {
    while (true) {
      jobs_.pop()();
      done_.push(error_of(stream));
    }
  } catch (const Closed&) {
    // The pipeline is being destroyed.
  }
}

}  // namespace epipe::pipeline
