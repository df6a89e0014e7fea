#pragma once

#include <cstdint>
#include <string>

namespace epipe::boundary {

// What crossed one cut in one direction.
struct Traffic {
  std::uint64_t wire_bytes = 0;
  std::uint64_t values = 0;
  double error_energy = 0;   // sum (x - x')^2 of the tensors whose error was measured
  double signal_energy = 0;  // sum x^2 of the same
  double encode_seconds = 0;
  double decode_seconds = 0;
  double recv_seconds = 0;  // in the link's recv, waiting for the sender included
  std::string form;         // what an entropy codec chose for the last tensor; empty for other codecs

  double bits_per_value() const { return values == 0 ? 0 : 8.0 * static_cast<double>(wire_bytes) / static_cast<double>(values); }
  double rel_error() const { return signal_energy > 0 ? error_energy / signal_energy : 0; }

  Traffic& operator+=(const Traffic& other) {
    wire_bytes += other.wire_bytes;
    values += other.values;
    error_energy += other.error_energy;
    signal_energy += other.signal_energy;
    encode_seconds += other.encode_seconds;
    decode_seconds += other.decode_seconds;
    recv_seconds += other.recv_seconds;
    if (!other.form.empty()) form = other.form;
    return *this;
  }
};

}  // namespace epipe::boundary
