#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "epipe/data/fetch/archive.h"

namespace epipe::data {
namespace {

struct Inflater {
  Inflater() { ready = inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK; }  // 16: gzip only
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  z_stream stream{};
  bool ready;
};

}  // namespace

Result<Bytes> gunzip(ByteView bytes, std::size_t max_bytes) {
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  Inflater inflater;
  if (!inflater.ready) return bad_file("zlib did not start");
  z_stream& stream = inflater.stream;
  Bytes out;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    if (stream.avail_in == 0 && !bytes.empty()) {
      const ByteView part = bytes.first(std::min(bytes.size(), kChunk));
      stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(part.data()));
      stream.avail_in = static_cast<uInt>(part.size());
      bytes = bytes.subspan(part.size());
    }
    Unwritten room(out, kChunk);
    stream.next_out = reinterpret_cast<Bytef*>(room.span().data());
    stream.avail_out = static_cast<uInt>(kChunk);
    status = inflate(&stream, Z_NO_FLUSH);
    room.written(kChunk - stream.avail_out);
    if (status == Z_BUF_ERROR) return bad_file("the gzip file ends too early");
    if (status != Z_OK && status != Z_STREAM_END) return bad_file("not a gzip file, or a damaged one");
    if (out.size() > max_bytes) return Error{ErrorCode::kTooLarge, fmt::format("the gzip file holds more than {} bytes", max_bytes)};
  }
  return out;
}

Part zlib_part() { return {"zlib", true, fmt::format("zlib {}", ZLIB_VERSION)}; }

}  // namespace epipe::data
