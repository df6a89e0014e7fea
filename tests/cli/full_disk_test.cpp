// A disk that is full while a checkpoint is written: a clear error, and the earlier checkpoint as it was.
#include <gtest/gtest.h>

#include <fstream>

#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using testing::run_program;
using testing::TempFolder;

std::string shell_output(const std::string& script, int& code) {
  FILE* const pipe = ::popen(script.c_str(), "r");
  std::string output;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) output += static_cast<char>(c);
  const int status = ::pclose(pipe);
  code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

// The run directory is a small disk of its own; a file takes what the first checkpoint has left of it.
constexpr const char* kScript = R"SHELL(unshare --mount --propagation private bash -c '
mount -t tmpfs -o size=$SIZE tmpfs $DISK || exit 77
$EPIPE_PROGRAM train $FLAGS --max-steps 2 > $FOLDER/first.log 2>&1 || exit 3
kept=$(ls -1 $DISK/run/checkpoints); before=$(cat $DISK/run/checkpoints/*/* | sha256sum)
head -c 64M /dev/zero > $DISK/filler 2> /dev/null
$EPIPE_PROGRAM train $FLAGS --max-steps 6 --resume > $FOLDER/full.log 2>&1; echo "code $?" >> $FOLDER/full.log
[ "$kept" = "$(ls -1 $DISK/run/checkpoints | grep -x "$kept")" ] || exit 4
[ "$before" = "$(cat $DISK/run/checkpoints/$kept/* | sha256sum)" ] || exit 5
rm $DISK/filler
$EPIPE_PROGRAM train $FLAGS --max-steps 6 --resume > $FOLDER/again.log 2>&1 || exit 6
cp $DISK/run/model.safetensors $FOLDER/resumed.safetensors' 2>&1)SHELL";

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(FullDisk, LeavesTheEarlierCheckpointWholeAndSaysWhy) {
  const TempFolder folder;
  const std::string flags = "--model cnn --batch 32 --chunks 2 --place 0,1,0 --optimizer adam --lr 0.001 --checkpoint-every 2";
  const std::string disk = folder.file("disk");
  const std::string exports = "export FOLDER=" + folder.path() + " DISK=" + disk + " SIZE=8m FLAGS='" + flags + " --run-dir " + disk +
                              "/run'; mkdir " + disk + "; ";
  int code = 0;
  const std::string output = shell_output(exports + kScript, code);
  if (code == 77 || output.find("Operation not permitted") != std::string::npos) GTEST_SKIP() << "mounting needs root: " << output;
  const std::string full = text_of(folder.file("full.log"));
  ASSERT_EQ(code, 0) << output << text_of(folder.file("first.log")) << full << text_of(folder.file("again.log"));
  EXPECT_NE(full.find("code 1"), std::string::npos) << full;
  EXPECT_NE(full.find("No space left"), std::string::npos) << full;
  const auto undisturbed = run_program("train " + flags + " --max-steps 6 --run-dir " + folder.file("one"));
  ASSERT_EQ(undisturbed.code, 0) << undisturbed.output;
  EXPECT_TRUE(text_of(folder.file("one/model.safetensors")) == text_of(folder.file("resumed.safetensors")));
}

}  // namespace
}  // namespace epipe::cli
