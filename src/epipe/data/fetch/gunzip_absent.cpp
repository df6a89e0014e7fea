#include "epipe/data/fetch/archive.h"

namespace epipe::data {
namespace {

constexpr const char* kWithoutZlib = "built without zlib; install zlib1g-dev and build again, or unpack the archive yourself";

}  // namespace

Result<Bytes> gunzip(ByteView, std::size_t) { return Error{ErrorCode::kBadFile, kWithoutZlib}; }

Part zlib_part() { return {"zlib", false, kWithoutZlib}; }

}  // namespace epipe::data
