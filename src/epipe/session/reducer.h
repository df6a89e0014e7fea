#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "epipe/base/trace.h"
#include "epipe/boundary/device_stream.h"
#include "epipe/layer/layer.h"
#include "epipe/pipeline/gradient_exchange.h"
#include "epipe/transport/group.h"

namespace epipe::session {

inline constexpr int kReducerTrack = 1'000'000;  // in the timeline

// Summing with the other replicas cannot continue; one of them may know why.
class ReplicaLost : public transport::ConnectionLost {
 public:
  using transport::ConnectionLost::ConnectionLost;
};

// Sums the gradients of one worker over its replicas while its backward still runs. A separate thread sums bucket by bucket, each as soon
// as its last gradient is ready; always in the same order, because every replica must sum the same buckets.
//
//   worker   ... | B m-1: p5 p4  p3  p2 p1  p0 | finish()          a backward completes the last layer's gradients first
//   reducer                   |bucket 0 |bucket 1 |bucket 2|statistics
//
// A bucket is one tensor: the gradients, one after the other, then for each parameter 1 if it has a gradient. So a parameter with a
// gradient in one replica gets one in all; with none anywhere it stays without. The sums do not depend on the size of the buckets.
class Reducer final : public pipeline::GradientExchange {
 public:
  // `replicas`: this worker in all replicas. The layers are the worker's, in model order; the tracer may be null and outlives this.
  Reducer(std::unique_ptr<transport::Group> replicas, std::vector<std::shared_ptr<layer::Layer>> layers, std::size_t bucket_bytes,
          Tracer* tracer);
  ~Reducer() override;
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  void begin(std::uint64_t step) override;
  void ready(const torch::Tensor& parameter) override;
  std::uint64_t finish() override;
  // For a batch of which this replica has no samples.
  std::uint64_t contribute_nothing(std::uint64_t step);

  // Leaves after a failure, so that the others do not wait for its gradients.
  void leave();

  std::size_t buckets() const { return buckets_.size(); }

 private:
  struct Bucket {
    std::vector<torch::Tensor> parameters;
    torch::Tensor memory;           // [gradients | has a gradient?], summed in place by the group
    std::size_t missing = 0;        // gradients still missing in the current batch
    boundary::StreamEvent ready{};  // when the last of them is ready on its device
  };

  void make_buckets(std::size_t bucket_bytes);
  void run();
  bool something_to_do() const;
  void sum(std::size_t turn, std::uint64_t step);
  void sum_bucket(Bucket& bucket);
  static std::vector<torch::Tensor> gradients(const Bucket& bucket);
  void sum_statistics();
  void add_sum(torch::Tensor& x);

  std::unique_ptr<transport::Group> replicas_;         // null after leave()
  std::vector<std::shared_ptr<layer::Layer>> layers_;  // shared with the model
  Tracer* tracer_;
  std::vector<Bucket> buckets_;
  std::map<const void*, std::size_t> bucket_of_;  // by the parameter's identity
  std::uint64_t sent_bytes_ = 0;                  // in the current batch; used by the thread until finish()
  std::vector<torch::Tensor> made_;               // gradients made on the thread's stream, likewise
  std::mutex mutex_;                              // guards the members below, and `missing`
  std::condition_variable changed_;
  std::uint64_t step_ = 0;
  std::size_t turn_ = 0;    // the next bucket, then the statistics
  bool begun_ = false;      // a batch is under way
  bool finishing_ = false;  // all forwards and backwards are done
  boundary::StreamEvent finished_{};
  bool left_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace epipe::session
