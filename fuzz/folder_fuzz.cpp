// Files that are read by their place in a folder: any bytes in it are what was written or an error with a reason. The first byte says which
// file gets the rest.
#include <fmt/format.h>

#include <cstdlib>
#include <span>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/boundary/frame_store.h"
#include "epipe/cli/command.h"
#include "epipe/cli/resume.h"
#include "epipe/data/text/token_store.h"
#include "epipe/model/adapter.h"
#include "epipe/model/hf_folder.h"
#include "epipe/session/checkpoint.h"
#include "epipe/transport/tls_files.h"
#include "epipe/wire/crc32c.h"
#include "support/temp_folder.h"

namespace {

using namespace epipe;

template <typename T>
void check_file(const Result<T>& result) {
  if (!result && result.error().message.empty()) std::abort();
}

void put(const std::string& path, ByteView bytes) {
  if (!write_file(path, {bytes})) std::abort();
}

void load_checkpoint(const std::string& folder, ByteView checksums, ByteView model) {
  const std::string at = folder + "/step-000000001";
  if (!make_private_folders(at)) std::abort();
  put(at + "/checksums.txt", checksums);
  put(at + "/model.safetensors", model);
  for (const char* const name : {"optimizer", "encoders"}) put(at + "/" + name + ".safetensors", {});
  const session::Checkpoints checkpoints(folder);
  if (checkpoints.steps().size() != 1) std::abort();
  (void)checkpoints.verify();
  try {
    (void)checkpoints.load(1);
    std::abort();  // there is no optimizer in it
  } catch (const std::runtime_error& error) {
    if (std::string_view(error.what()).find("cannot resume") == std::string_view::npos) std::abort();
  }
}

// Weights whose checksum is right.
void check_model_of_checkpoint(const std::string& folder, ByteView model) {
  const std::string checksums = fmt::format("{:08x}  model.safetensors\n{:08x}  optimizer.safetensors\n{:08x}  encoders.safetensors\n",
                                            wire::crc32c(model), wire::crc32c({}), wire::crc32c({}));
  load_checkpoint(folder, std::as_bytes(std::span(checksums)), model);
}

void check_token_store(const std::string& folder, ByteView bytes) {
  constexpr std::int64_t kVocabulary = 1000;
  put(folder + "/tokens", bytes);
  const auto store = data::read_token_store(folder + "/tokens", {}, kVocabulary);
  check_file(store);
  if (!store) return;
  for (const data::TokenSample& sample : store.value().samples) {
    for (const auto id : store.value().tokens.subspan(sample.begin, sample.count)) {
      if (id < 0 || id >= kVocabulary) std::abort();
    }
  }
}

void check_frame_store(const std::string& folder, ByteView bytes) {
  put(folder + "/frames", bytes);
  boundary::FrameStore store(folder + "/frames", 1 << 16);
  for (const auto& key : store.held()) {
    if (const auto frame = store.find(key); frame && frame->size() > bytes.size()) std::abort();
  }
  const boundary::SampleKey key{7, 7};
  const Bytes frame(10);
  if (store.keep(key, frame) && store.find(key) != frame) std::abort();
}

void check_run_config(const std::string& folder, ByteView bytes) {
  static const CLI::App nothing_given;
  put(folder + "/config.toml", bytes);
  try {
    (void)cli::flags_of_run(folder, nothing_given);
  } catch (const cli::UsageError& error) {
    if (std::string_view(error.what()).find("config.toml") == std::string_view::npos) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const testing::TempFolder scratch;
  if (size == 0) return 0;
  const ByteView bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  const std::string folder = scratch.file("folder");
  if (!make_private_folders(folder)) std::abort();
  switch (data[0] % 8) {
    case 0: load_checkpoint(folder, bytes, {}); break;
    case 1: check_token_store(folder, bytes); break;
    case 2: check_frame_store(folder, bytes); break;
    case 3:
      put(folder + "/adapter_config.json", bytes);
      check_file(model::read_adapter_config(folder));
      break;
    case 4:
      put(folder + "/model.safetensors.index.json", bytes);
      check_file(model::hf_weight_files(folder));
      break;
    case 5: check_run_config(folder, bytes); break;
    case 6: check_model_of_checkpoint(folder, bytes); break;
    case 7: check_file(transport::certificate_expiry({reinterpret_cast<const char*>(bytes.data()), bytes.size()})); break;
  }
  if (!remove_tree(folder)) std::abort();
  return 0;
}
