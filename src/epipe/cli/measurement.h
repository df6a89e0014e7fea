#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "epipe/codec/measure.h"

// The output of measurements, for `epipe codec measure` and `epipe bench codec`.
namespace epipe::cli {

// The fields other programs rely on: codec, values, wire_bytes, bits_per_value, rel_error, encode_MBps, decode_MBps, memcpy_MBps.
nlohmann::json to_json(const std::string& spec, const codec::Measurement& m);

// A table for humans; columns as wide as their content.
class MeasurementTable {
 public:
  void add(const std::string& tensor, const std::string& spec, const codec::Measurement& m);
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// The codec a flag names; throws UsageError with a mark under the wrong character.
std::unique_ptr<codec::Codec> codec_from_flag(const std::string& spec, const codec::CodecOptions& options,
                                              std::string_view flag = "--codec");

}  // namespace epipe::cli
