#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "epipe/base/bytes.h"

// State dicts as torch.save writes them, byte by byte, so that tests can break them.
namespace epipe::testing {

inline ByteView bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

template <typename T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

inline std::uint32_t zip_crc(const std::string& bytes) {
  std::uint32_t c = 0xffffffff;
  for (const char b : bytes) {
    c ^= static_cast<unsigned char>(b);
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0xedb88320U : 0U);
  }
  return ~c;
}

// A ZIP archive of stored members.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out;
  std::string directory;
  for (const auto& [name, data] : members) {
    std::string sizes;
    put(sizes, zip_crc(data));
    put(sizes, static_cast<std::uint32_t>(data.size()));
    put(sizes, static_cast<std::uint32_t>(data.size()));
    put(sizes, static_cast<std::uint16_t>(name.size()));
    put(sizes, std::uint16_t{0});
    directory.append("PK\x01\x02").append(12, '\0').append(sizes).append(10, '\0');
    put(directory, static_cast<std::uint32_t>(out.size()));
    directory += name;
    out.append("PK\x03\x04").append(10, '\0').append(sizes).append(name).append(data);
  }
  std::string end = "PK\x05\x06";
  end.append(4, '\0');
  put(end, static_cast<std::uint16_t>(members.size()));
  put(end, static_cast<std::uint16_t>(members.size()));
  put(end, static_cast<std::uint32_t>(directory.size()));
  put(end, static_cast<std::uint32_t>(out.size()));
  put(end, std::uint16_t{0});
  return out + directory + end;
}

inline std::string float_bytes(const std::vector<float>& values) {
  std::string out;
  for (const float v : values) put(out, v);
  return out;
}

// A view of storage "0".
struct FakeTensor {
  std::int32_t offset;
  std::vector<std::int32_t> sizes;
  std::vector<std::int32_t> strides;
};

inline std::string pickled(const std::string& text) {
  std::string out = "X";
  put(out, static_cast<std::uint32_t>(text.size()));
  return out + text;
}
inline std::string pickled(std::int32_t number) {
  std::string out = "J";
  put(out, number);
  return out;
}
inline std::string pickled(const std::vector<std::int32_t>& numbers) {
  std::string out = "(";
  for (const auto n : numbers) out += pickled(n);
  return out + "t";
}

inline std::string pickle_of(const std::vector<std::pair<std::string, FakeTensor>>& tensors, std::string_view type = "FloatStorage") {
  std::string out = "\x80\x02}(";
  for (const auto& [name, t] : tensors) {
    out += pickled(name) + "ctorch._utils\n_rebuild_tensor_v2\n((" + pickled("storage") + "ctorch\n" + std::string(type) + "\n" +
           pickled("0") + pickled("cpu") + pickled(4) + "tQ" + pickled(t.offset) + pickled(t.sizes) + pickled(t.strides) +
           "\x89"
           "ccollections\nOrderedDict\n)RtR";
  }
  return out + "u.";
}

}  // namespace epipe::testing
