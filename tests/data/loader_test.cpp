// Batches made ahead: the same ones in the same order whatever the threads, and an end that is clean.
#include "epipe/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>

namespace epipe::data {
namespace {

using namespace std::chrono_literals;

// Sample i is the number i; batches take a time of their own, so that threads overtake each other.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::int64_t size) : size_(size) {}
  DataSpec spec() const override { return {DataSpec::Kind::kImages, {1}, 2}; }
  std::int64_t size() const override { return size_; }
  layer::Batch batch(std::span<const std::int64_t> ids, const BatchContext& at) const override {
    ++made;
    const auto running = ++now_running;
    if (running > most_running) most_running = running;
    std::this_thread::sleep_for(pause + std::chrono::microseconds(at.step * 7919 % 5 * 300));
    --now_running;
    if (at.step == fail_at) throw std::runtime_error("broken sample");
    layer::Batch batch;
    batch.samples.assign(ids.begin(), ids.end());
    batch.inputs = {torch::full({static_cast<std::int64_t>(ids.size())}, static_cast<double>(at.seed * 1000 + at.epoch * 100 + at.step))};
    return batch;
  }

  std::uint64_t fail_at = ~std::uint64_t{0};
  std::chrono::milliseconds pause{0};  // on top
  mutable std::atomic<int> made = 0;
  mutable std::atomic<int> now_running = 0;
  mutable std::atomic<int> most_running = 0;

 private:
  std::int64_t size_;
};

TEST(Loader, GivesTheSameBatchesInTheSameOrderWhateverTheThreads) {
  const Numbers data(103);
  const std::uint64_t end = 3 * Loader::steps_per_epoch(103, 10);
  Loader one(data, {10, true, 7, 0, end, 1});
  Loader many(data, {10, true, 7, 0, end, 8});
  for (std::uint64_t step = 0; step < end; ++step) {
    const LoadedBatch a = one.next();
    const LoadedBatch b = many.next();
    EXPECT_EQ(a.step, step);
    EXPECT_EQ(b.step, step);
    EXPECT_EQ(a.epoch, step / 11);
    EXPECT_EQ(a.last_of_epoch, step % 11 == 10);
    EXPECT_EQ(a.batch.samples, b.batch.samples);
    EXPECT_TRUE(torch::equal(a.batch.inputs[0], b.batch.inputs[0]));
    EXPECT_EQ(a.batch.samples.size(), step % 11 == 10 ? 3U : 10U);
  }
}

TEST(Loader, SplitsEveryBatchIntoContiguousShards) {
  const Numbers data(103);
  for (const int shards : {1, 2, 3, 4}) {
    Loader whole(data, {10, true, 7, 0, 22, 2});
    std::vector<std::unique_ptr<Loader>> parts;
    for (int s = 0; s < shards; ++s) parts.push_back(std::make_unique<Loader>(data, LoaderConfig{10, true, 7, 0, 22, 2, s, shards}));
    for (int step = 0; step < 22; ++step) {
      const LoadedBatch expected = whole.next();
      std::vector<std::int64_t> samples;
      std::vector<std::size_t> sizes;
      for (const auto& part : parts) {
        const LoadedBatch loaded = part->next();
        EXPECT_EQ(loaded.samples, expected.batch.size());
        EXPECT_EQ(loaded.last_of_epoch, expected.last_of_epoch);
        samples.insert(samples.end(), loaded.batch.samples.begin(), loaded.batch.samples.end());
        sizes.push_back(loaded.batch.samples.size());
      }
      EXPECT_EQ(samples, expected.batch.samples);
      EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()) - *std::min_element(sizes.begin(), sizes.end()), 1U);
    }
  }
  EXPECT_THROW(Loader(data, {10, true, 7, 0, 22, 2, 3, 3}), std::invalid_argument);
}

TEST(Loader, ContinuesWhereAnEarlierOneEnded) {
  const Numbers data(50);
  Loader whole(data, {8, true, 1, 0, 20, 3});
  Loader rest(data, {8, true, 1, 12, 20, 2});
  for (int i = 0; i < 12; ++i) whole.next();
  for (int i = 12; i < 20; ++i) EXPECT_EQ(whole.next().batch.samples, rest.next().batch.samples);
}

TEST(Loader, WorksInAllItsThreadsButOnlySoFarAhead) {
  Numbers data(1000);
  data.pause = 30ms;  // long enough for two threads to meet on a busy machine
  Loader loader(data, {1, false, 0, 0, 1000, 4});
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(data.made, 6);  // 4 threads and 2 spare batches
  EXPECT_GT(data.most_running, 1);
  for (int i = 0; i < 10; ++i) loader.next();
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(data.made, 16);
}

TEST(Loader, EndsWhileBatchesAreWaitingOrInTheMaking) {
  for (const auto wait : {0ms, 1ms, 20ms}) {
    const Numbers data(1000);
    Loader loader(data, {3, true, 0, 0, 300, 5});
    loader.next();
    std::this_thread::sleep_for(wait);
  }
}

TEST(Loader, RethrowsWhatTheDataThrewAtItsStepAndAgain) {
  Numbers data(100);
  data.fail_at = 5;
  Loader loader(data, {10, true, 0, 0, 10, 4});
  for (int step = 0; step < 5; ++step) EXPECT_EQ(loader.next().step, static_cast<std::uint64_t>(step));
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_THROW(loader.next(), std::runtime_error);
}

TEST(Loader, RefusesMoreThanThereIsAndNoThreads) {
  const Numbers data(4);
  Loader loader(data, {4, true, 0, 0, 1, 2});
  loader.next();
  EXPECT_THROW(loader.next(), std::logic_error);
  EXPECT_THROW(Loader(data, {4, true, 0, 0, 1, 0}), std::invalid_argument);
}

}  // namespace
}  // namespace epipe::data
