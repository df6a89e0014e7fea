#pragma once

#include <array>
#include <memory>
#include <vector>

#include "epipe/boundary/sender.h"

namespace epipe::pipeline {

// Which of the two stages at a cut.
enum class Side : std::uint8_t { kEarlier = 0, kLater = 1 };

// The connection between stage j and stage j + 1, in both directions. If the other worker is in another process, only one end is here.
class Cut {
 public:
  struct Config {
    std::string forward = "none";  // codec specs
    std::string backward = "none";
    std::uint16_t index = 0;
    std::size_t capacity = 1;  // micro-batches per direction
    transport::Timeout timeout = transport::kNoTimeout;
    int codec_threads = 1;       // of each sender and each receiver
    bool steps_overlap = false;  // this and the next: see boundary/boundary.h
    bool flag_non_finite = false;
    std::array<torch::Device, 2> devices = {torch::kCPU, torch::kCPU};  // of the workers, by side
    Tracer* tracer = nullptr;                                           // outlives the cut
  };

  // One worker has both stages: tensors are passed directly.
  static std::unique_ptr<Cut> within_worker();
  // Two workers of this process: through codec and link. If they share a CUDA device, frames stay there, and with the codec none
  // tensors pass unchanged from stream to stream.
  static std::unique_ptr<Cut> between_threads(const Config& config, const boundary::OnFailure& on_failure);
  // The end at `side`; the other end is at the link's peer.
  static std::unique_ptr<Cut> to_peer(const Config& config, Side side, std::unique_ptr<transport::Link> link,
                                      const boundary::OnFailure& on_failure);

  // The same for activations that the later side keeps by sample in `frames` (not needed on the earlier side): forward only.
  static std::unique_ptr<Cut> reusing(const Config& config, Side side, std::unique_ptr<transport::Link> link,
                                      std::shared_ptr<boundary::FrameStore> frames, const boundary::OnFailure& on_failure);

  virtual ~Cut() = default;
  Cut(const Cut&) = delete;
  Cut& operator=(const Cut&) = delete;

  // Called by the worker of the sending stage, and by the worker of the receiving stage.
  virtual void send(wire::Direction direction, boundary::MicroBatchTensors tensors) = 0;
  virtual std::vector<torch::Tensor> recv(wire::Direction direction, std::uint64_t step, std::uint32_t micro_batch) = 0;

  // Whether the receiver already has this sample's activations, so that they need not be sent.
  virtual bool holds(const boundary::SampleKey&) const { return false; }

  // Waits until all tensors sent from here are encoded, or checked.
  virtual void finish_encoding() = 0;
  // The traffic since the last call, as seen from here; zero within one worker.
  virtual boundary::Traffic take_traffic(wire::Direction direction) = 0;
  // The sender of a direction; null if it is not here, or nothing is coded.
  virtual boundary::Sender* sender(wire::Direction direction) = 0;
  virtual void close() = 0;
  // After close(): waits until no thread of this cut runs any more.
  virtual void join() = 0;

 protected:
  Cut() = default;
  static boundary::BoundaryConfig boundary_config(const Config& config, Side side, wire::Direction direction);
};

}  // namespace epipe::pipeline
