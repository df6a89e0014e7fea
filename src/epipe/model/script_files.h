#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "epipe/base/result.h"
#include "epipe/model/registry.h"

// TorchScript files by the SHA-256 of their bytes: a client names the hash, code is never sent, and both sides have the same file or none.
namespace epipe::model {

inline constexpr std::uint64_t kMaxScriptBytes = std::uint64_t{4} << 30;
inline constexpr std::size_t kMaxScriptFiles = 1000;

// Path by hash, 64 hexadecimal digits in lower case.
using ScriptFiles = std::map<std::string, std::string>;

// "9f86d0...", for a file of at most kMaxScriptBytes.
Result<std::string> script_hash(const std::string& path);

// The files in a folder whose names end in .pt. An error if the folder or one of them cannot be read or exceeds its limit.
Result<ScriptFiles> read_script_folder(const std::string& folder);

// "torchscript:FILE" opens a file of the user's choice. "torchscript:sha256=HASH" opens only what is installed under this hash, and only
// if its bytes still have it; no part of the name becomes a path.
Registry::Entry torchscript_entry(ScriptFiles installed = {});

}  // namespace epipe::model
