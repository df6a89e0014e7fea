#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace epipe::train {

// The numbers of metrics.jsonl in TensorBoard's format: events.out.tfevents.TIME.HOST.PID in the run's folder. Tags are derived from the
// lines: "loss", "val_loss", "cut_0_forward/bits_per_value", "worker_1/wait".
//
//   8 bytes  N, little-endian        each record
//   4 bytes  masked CRC-32C of N
//   N bytes  an Event (tensorflow/core/util/event.proto): wall_time, step, and file_version, summary or session_log
//   4 bytes  masked CRC-32C of the Event
//
// A run that continues, or goes back, starts a new file. Its first record tells TensorBoard to drop earlier data of these steps.
class EventsFile {
 public:
  // The file is created with the first line.
  EventsFile(std::string folder, std::uint64_t first_step) : folder_(std::move(folder)), first_step_(first_step) {}
  ~EventsFile();
  EventsFile(const EventsFile&) = delete;
  EventsFile& operator=(const EventsFile&) = delete;

  // Appends a line of metrics.jsonl. Throws std::runtime_error if it cannot be written.
  void append(const nlohmann::json& line);

 private:
  void open();
  void write(const std::string& event);

  const std::string folder_;
  const std::uint64_t first_step_;
  std::FILE* file_ = nullptr;
};

}  // namespace epipe::train
