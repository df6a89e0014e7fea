#pragma once

#include <deque>
#include <memory>

#include "epipe/boundary/boundary.h"

namespace epipe::pipeline {

// The way between stage j and stage j + 1, in both directions: through codec and link where they are on two workers, from hand to hand
// where one worker has both.
class Cut {
 public:
  struct Config {
    std::string forward = "none";  // codec specs
    std::string backward = "none";
    std::uint16_t index = 0;
    std::size_t capacity = 1;  // parcels per direction
    Tracer* tracer = nullptr;  // outlives the cut
  };

  // Two workers of this process.
  static std::unique_ptr<Cut> between_threads(const Config& config, const boundary::OnFailure& on_failure);
  static std::unique_ptr<Cut> within_worker();

  void send(wire::Direction direction, boundary::Parcel parcel);
  std::vector<torch::Tensor> recv(wire::Direction direction, std::uint64_t step, std::uint32_t micro_batch);

  // What crossed since the last call; nothing where no link is.
  boundary::Traffic take_traffic(wire::Direction direction);
  // The sender of a direction; null where no link is.
  boundary::Sender* sender(wire::Direction direction) { return ways_[index_of(direction)].sender.get(); }
  void close();
  // After close(): until no thread of this cut runs any more.
  void join();

 private:
  struct Way {
    std::unique_ptr<transport::Link> link;
    std::unique_ptr<boundary::Sender> sender;
    std::unique_ptr<boundary::Receiver> receiver;
    std::deque<boundary::Parcel> handed_over;  // within one worker, by its only thread
  };
  static std::size_t index_of(wire::Direction direction) { return static_cast<std::size_t>(direction); }

  std::array<Way, 2> ways_;  // by direction
};

}  // namespace epipe::pipeline
