#pragma once

#include <array>
#include <deque>
#include <memory>

#include "epipe/boundary/boundary.h"
#include "epipe/boundary/direct.h"

namespace epipe::pipeline {

// Which of the two stages at a cut.
enum class Side : std::uint8_t { kEarlier = 0, kLater = 1 };

// The way between stage j and stage j + 1, in both directions: through codec and link where they are on two workers, from hand to hand
// where one worker has both, or where two share a CUDA device and nothing is to be coded. Where the other worker is in another process,
// only one end of the way is here.
class Cut {
 public:
  struct Config {
    std::string forward = "none";  // codec specs
    std::string backward = "none";
    std::uint16_t index = 0;
    std::size_t capacity = 1;  // parcels per direction
    transport::Patience patience = transport::kForever;
    bool flag_non_finite = false;                                       // see boundary/boundary.h
    std::array<torch::Device, 2> devices = {torch::kCPU, torch::kCPU};  // of the workers, by side
    Tracer* tracer = nullptr;                                           // outlives the cut
  };

  static std::unique_ptr<Cut> within_worker();
  // Two workers of this process.
  static std::unique_ptr<Cut> between_threads(const Config& config, const boundary::OnFailure& on_failure);
  // The end at `side`; the other one is the link's peer.
  static std::unique_ptr<Cut> to_peer(const Config& config, Side side, std::unique_ptr<transport::Link> link,
                                      const boundary::OnFailure& on_failure);

  // By the worker of the sending stage, and by that of the receiving one.
  void send(wire::Direction direction, boundary::Parcel parcel);
  std::vector<torch::Tensor> recv(wire::Direction direction, std::uint64_t step, std::uint32_t micro_batch);

  // Waits until all that was sent from here is encoded.
  void finish_encoding();
  // What crossed since the last call, as far as it was seen from here; nothing where no link is.
  boundary::Traffic take_traffic(wire::Direction direction);
  // The sender of a direction; null where it is not here.
  boundary::Sender* sender(wire::Direction direction);
  void close();
  // After close(): until no thread of this cut runs any more.
  void join();

 private:
  struct End {
    std::unique_ptr<transport::Link> link;
    std::unique_ptr<boundary::Sender> sender;
    std::unique_ptr<boundary::Receiver> receiver;
  };
  void add_direct(const Config& config);
  void add_end(const Config& config, Side side, std::unique_ptr<transport::Link> link, const boundary::OnFailure& on_failure);
  End& sending(wire::Direction direction) { return ends_[direction == wire::Direction::kForward ? 0 : 1]; }
  End& receiving(wire::Direction direction) { return ends_[direction == wire::Direction::kForward ? 1 : 0]; }

  std::array<End, 2> ends_;                                  // by side; those that are here
  std::array<std::unique_ptr<boundary::Direct>, 2> direct_;  // by direction; between workers that share a device
  bool linked_ = false;
  std::array<std::deque<boundary::Parcel>, 2> handed_over_;  // by direction; within one worker, by its only thread
};

}  // namespace epipe::pipeline
