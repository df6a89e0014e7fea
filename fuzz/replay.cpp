// replay TARGET FOLDER...: feeds every file of the folders to a fuzz target, the corpus as a plain test without libFuzzer.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

using FuzzTarget = int(const std::uint8_t* data, std::size_t size);
extern const std::map<std::string, FuzzTarget*> kFuzzTargets;

int main(int argc, char** argv) {
  const auto target = argc > 1 ? kFuzzTargets.find(argv[1]) : kFuzzTargets.end();
  if (target == kFuzzTargets.end()) {
    std::fprintf(stderr, "expected a fuzz target and folders, such as: frame fuzz/corpus/frame\n");
    return 2;
  }
  int files = 0;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      target->second(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++files;
    }
  }
  std::printf("%d inputs replayed\n", files);
  return files > 0 ? 0 : 1;  // an empty corpus tests nothing
}
