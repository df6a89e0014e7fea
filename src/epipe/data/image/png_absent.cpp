#include "epipe/data/image/image.h"

namespace epipe::data {
namespace {

constexpr const char* kMissing = "built without libpng; install libpng-dev and build again";

}  // namespace

Result<Image> decode_png(ByteView) { return Error{ErrorCode::kBadFile, kMissing}; }

Part png_part() { return {"png", false, kMissing}; }

}  // namespace epipe::data
