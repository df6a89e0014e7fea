#pragma once

#include <sys/stat.h>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace epipe::testing {

// What a program asked of the disk, below one folder, in its order. Paths are relative to that folder, which is "".
struct DiskCall {
  enum class Kind { kMakeFolder, kCreate, kWrite, kSyncFile, kSyncFolder, kRename, kRemove, kNote };
  Kind kind;
  std::string path;    // or the text of a note
  std::string to{};    // of a rename
  std::string data{};  // of a write
};

// What may be on the disk after a power failure. Names that a synced folder has are there; of those it got later, in their order, some.
// Bytes that were synced are there; of those written later, some.
class Disk {
 public:
  enum class Loss {
    kAllUnsynced,   // nothing that was not synced is there
    kUnsyncedData,  // names are there at once, their files' bytes are not: a file system without ordered data
    kNothing,       // the process was killed, not the machine
    kSome,          // a part of each, by a seed
  };

  // The state after the first `count` calls.
  Disk(const std::vector<DiskCall>& calls, std::size_t count, Loss loss, std::uint64_t seed) : loss_(loss), random_(seed) {
    nodes_[kRoot].folder = true;
    for (std::size_t i = 0; i < count; ++i) take(calls[i]);
  }

  // As folders and files below `root`, which exists.
  void write_to(const std::string& root) { write_folder(kRoot, root); }

 private:
  static constexpr int kRoot = 0;
  // A change of the names in one folder: `name` is `node` from now on; -1: nothing.
  struct Change {
    std::string name;
    int node;
  };
  struct Node {
    bool folder = false;
    std::map<std::string, int> names{};          // of a folder, as the running system sees it
    std::map<std::string, int> synced_names{};   // and as the disk has it for certain
    std::vector<std::vector<Change>> pending{};  // calls since then: each happens as a whole
    std::string bytes{};
    std::string synced_bytes{};
  };

  static std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }
  static std::string folder_of(const std::string& path) {
    return path.find('/') == std::string::npos ? "" : path.substr(0, path.rfind('/'));
  }

  int find(const std::string& path) const {
    if (path.empty()) return kRoot;
    const Node& folder = nodes_.at(find(folder_of(path)));
    const auto found = folder.names.find(name_of(path));
    if (found == folder.names.end()) throw std::logic_error("the log names " + path + ", which is not there");
    return found->second;
  }

  void change(const std::string& folder, std::vector<Change> changes) {
    Node& node = nodes_.at(find(folder));
    for (const Change& one : changes) one.node < 0 ? (void)node.names.erase(one.name) : (void)(node.names[one.name] = one.node);
    node.pending.push_back(std::move(changes));
  }

  void take(const DiskCall& call) {
    switch (call.kind) {
      case DiskCall::Kind::kMakeFolder:
      case DiskCall::Kind::kCreate: {
        const int made = static_cast<int>(nodes_.size());
        nodes_[made].folder = call.kind == DiskCall::Kind::kMakeFolder;
        return change(folder_of(call.path), {{name_of(call.path), made}});
      }
      case DiskCall::Kind::kWrite: nodes_.at(find(call.path)).bytes += call.data; return;
      case DiskCall::Kind::kSyncFile: {
        Node& file = nodes_.at(find(call.path));
        file.synced_bytes = file.bytes;
        return;
      }
      case DiskCall::Kind::kSyncFolder: {
        Node& folder = nodes_.at(find(call.path));
        folder.synced_names = folder.names;
        folder.pending.clear();
        return;
      }
      case DiskCall::Kind::kRename:
        if (folder_of(call.path) != folder_of(call.to)) throw std::logic_error("a rename between folders; teach it to this class");
        return change(folder_of(call.path), {{name_of(call.to), find(call.path)}, {name_of(call.path), -1}});
      case DiskCall::Kind::kRemove: return change(folder_of(call.path), {{name_of(call.path), -1}});
      case DiskCall::Kind::kNote: return;
    }
  }

  // How much of what is not certain is there.
  std::size_t kept(std::size_t of) {
    switch (loss_) {
      case Loss::kAllUnsynced: return 0;
      case Loss::kUnsyncedData:
      case Loss::kNothing: return of;
      case Loss::kSome: return std::uniform_int_distribution<std::size_t>(0, of)(random_);
    }
    return 0;
  }

  std::string bytes_left(const Node& file) {
    if (loss_ == Loss::kUnsyncedData) return file.synced_bytes;
    return file.bytes.substr(0, file.synced_bytes.size() + kept(file.bytes.size() - file.synced_bytes.size()));
  }

  void write_folder(int number, const std::string& path) {
    const Node& node = nodes_.at(number);
    std::map<std::string, int> names = node.synced_names;
    const std::size_t count = kept(node.pending.size());
    for (std::size_t i = 0; i < count; ++i) {
      for (const Change& one : node.pending[i]) one.node < 0 ? (void)names.erase(one.name) : (void)(names[one.name] = one.node);
    }
    for (const auto& [name, child] : names) {
      if (nodes_.at(child).folder) {
        if (::mkdir((path + "/" + name).c_str(), 0700) != 0) throw std::runtime_error("cannot make " + path + "/" + name);
        write_folder(child, path + "/" + name);
      } else {
        std::ofstream(path + "/" + name, std::ios::binary) << bytes_left(nodes_.at(child));
      }
    }
  }

  const Loss loss_;
  std::mt19937_64 random_;
  std::map<int, Node> nodes_;
};

}  // namespace epipe::testing
