#include "epipe/data/loader.h"

#include <algorithm>

namespace epipe::data {

Loader::Loader(const Dataset& dataset, const LoaderConfig& config) : dataset_(dataset), config_(config), thread_([this] { run(); }) {}

Loader::~Loader() {
  ready_.close();
  thread_.join();
}

std::uint64_t Loader::steps_per_epoch(std::int64_t samples, std::int64_t batch_size) {
  return static_cast<std::uint64_t>((samples + batch_size - 1) / batch_size);
}

LoadedBatch Loader::next() {
  try {
    return ready_.pop();
  } catch (const Closed&) {
    if (failure_) std::rethrow_exception(failure_);
    throw;
  }
}

void Loader::run() {
  try {
    const std::uint64_t per_epoch = steps_per_epoch(dataset_.size(), config_.batch_size);
    std::uint64_t ordered_epoch = ~std::uint64_t{0};
    std::vector<std::int64_t> order;
    for (std::uint64_t step = config_.first_step; step < config_.end_step; ++step) {
      const std::uint64_t epoch = step / per_epoch;
      if (epoch != ordered_epoch) order = epoch_order(dataset_.size(), config_.shuffle, config_.seed, epoch);
      ordered_epoch = epoch;
      const std::size_t begin = static_cast<std::size_t>(step % per_epoch) * static_cast<std::size_t>(config_.batch_size);
      const std::size_t count = std::min(static_cast<std::size_t>(config_.batch_size), order.size() - begin);
      ready_.push({epoch, step, step % per_epoch + 1 == per_epoch, dataset_.batch(std::span(order).subspan(begin, count))});
    }
  } catch (const Closed&) {
    // The loader is being destroyed.
  } catch (...) {
    failure_ = std::current_exception();
    ready_.close();
  }
}

}  // namespace epipe::data
