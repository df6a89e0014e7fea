#include "epipe/data/image/image.h"

namespace epipe::data {
namespace {

constexpr const char* kWithoutPng = "built without libpng; install libpng-dev and build again";

}  // namespace

Result<Image> decode_png(ByteView) { return Error{ErrorCode::kBadFile, kWithoutPng}; }

Part png_part() { return {"png", false, kWithoutPng}; }

}  // namespace epipe::data
