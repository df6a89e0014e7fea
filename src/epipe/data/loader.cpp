#include "epipe/data/loader.h"

#include <algorithm>
#include <stdexcept>

namespace epipe::data {
namespace {

constexpr std::uint64_t kSpare = 2;  // finished batches beyond the ones in progress

}  // namespace

Shard shard_of(std::int64_t samples, int shard, int shards) {
  const std::int64_t least = samples / shards;
  const std::int64_t more = samples % shards;
  return {least * shard + std::min<std::int64_t>(shard, more), least + (shard < more ? 1 : 0)};
}

Loader::Loader(const Dataset& dataset, const LoaderConfig& config)
    : dataset_(dataset),
      config_(config),
      per_epoch_(steps_per_epoch(dataset.size(), config.batch_size)),
      claimed_(config.first_step),
      wanted_(config.first_step) {
  if (config.threads < 1) throw std::invalid_argument("a loader needs at least one thread");
  if (config.shard < 0 || config.shard >= config.shards) throw std::invalid_argument("a loader's shard is one of its shards");
  for (int i = 0; i < config.threads; ++i) threads_.emplace_back([this] { run(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  room_.notify_all();
  for (auto& thread : threads_) thread.join();
}

std::uint64_t Loader::steps_per_epoch(std::int64_t samples, std::int64_t batch_size) {
  return static_cast<std::uint64_t>((samples + batch_size - 1) / batch_size);
}

LoadedBatch Loader::next() {
  std::unique_lock lock(mutex_);
  if (wanted_ >= config_.end_step) throw std::logic_error("every batch of the loader has been taken");
  filled_.wait(lock, [this] { return made_.contains(wanted_); });
  Made made = std::move(made_.extract(wanted_).mapped());
  if (made.failure) {
    made_[wanted_].failure = made.failure;  // for later calls
    std::rethrow_exception(made.failure);
  }
  ++wanted_;
  lock.unlock();
  room_.notify_all();
  return std::move(made.loaded);
}

void Loader::run() {
  std::unique_lock lock(mutex_);
  const std::uint64_t ahead = static_cast<std::uint64_t>(config_.threads) + kSpare;
  while (true) {
    room_.wait(lock, [&] { return stop_ || claimed_ >= config_.end_step || claimed_ < wanted_ + ahead; });
    if (stop_ || claimed_ >= config_.end_step) return;
    const std::uint64_t step = claimed_++;
    const Order order = order_of(step / per_epoch_);
    lock.unlock();
    Made made = make(step, order);
    lock.lock();
    made_[step] = std::move(made);
    filled_.notify_all();
  }
}

// Steps are claimed in ascending order, so one epoch at a time is enough.
Loader::Order Loader::order_of(std::uint64_t epoch) {
  if (!order_ || epoch != ordered_epoch_) {
    order_ = std::make_shared<const std::vector<std::int64_t>>(epoch_order(dataset_.size(), config_.shuffle, config_.seed, epoch));
    ordered_epoch_ = epoch;
  }
  return order_;
}

Loader::Made Loader::make(std::uint64_t step, const Order& order) const {
  Made made;
  try {
    const std::uint64_t epoch = step / per_epoch_;
    const std::size_t begin = static_cast<std::size_t>(step % per_epoch_) * static_cast<std::size_t>(config_.batch_size);
    const std::size_t count = std::min(static_cast<std::size_t>(config_.batch_size), order->size() - begin);
    const auto part = shard_of(static_cast<std::int64_t>(count), config_.shard, config_.shards);
    const auto ids = std::span(*order).subspan(begin + static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.size));
    const BatchContext at{config_.seed, epoch, step};
    made.loaded = {epoch, step, step % per_epoch_ + 1 == per_epoch_, static_cast<std::int64_t>(count), static_cast<std::int64_t>(count),
                   {}};
    if (!ids.empty()) made.loaded.batch = dataset_.batch(ids, at);
    if (dataset_.spec().next_token) {  // tokens without a target are not counted in any shard
      made.loaded.terms =
          layer::loss_terms(ids.size() == count ? made.loaded.batch : dataset_.batch(std::span(*order).subspan(begin, count), at));
    }
  } catch (...) {
    made.failure = std::current_exception();
  }
  return made;
}

}  // namespace epipe::data
