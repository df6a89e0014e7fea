#include "epipe/data/image/image.h"

namespace epipe::data {
namespace {

constexpr const char* kWithoutJpeg = "built without libjpeg; install libjpeg62-turbo-dev and build again";

}  // namespace

Result<Image> decode_jpeg(ByteView) { return Error{ErrorCode::kBadFile, kWithoutJpeg}; }

Part jpeg_part() { return {"jpeg", false, kWithoutJpeg}; }

}  // namespace epipe::data
