#include "epipe/data/npy.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "epipe/base/file.h"
#include "support/temp_folder.h"

namespace epipe::data {
namespace {

// A version 1 file with this dict and so many bytes of values.
Bytes npy(std::string dict, std::size_t value_bytes, char major = 1) {
  std::string text = "\x93NUMPY";
  text += {major, 0, static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)};
  if (major > 1) text += std::string(2, '\0');
  text += dict;
  Bytes bytes;
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  for (std::size_t i = 0; i < value_bytes / 4; ++i) append(bytes, static_cast<float>(i));
  bytes.resize(bytes.size() + value_bytes % 4);
  return bytes;
}

std::string npy_error(const Bytes& bytes) {
  const auto x = parse_npy(bytes);
  EXPECT_FALSE(x.ok());
  return x.ok() ? "" : x.error().message;
}

TEST(Npy, GivesBackEveryShape) {
  const testing::TempFolder folder;
  const std::string file = folder.file("x.npy");
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{}, {0}, {1}, {5}, {2, 3}, {2, 0, 3}, {4, 3, 2, 5, 1}}) {
    const auto x = torch::randn(shape);
    ASSERT_TRUE(write_npy(file, x).ok());
    EXPECT_EQ(std::filesystem::file_size(file) % 64, static_cast<std::size_t>(x.numel() * 4) % 64) << "NumPy aligns values to 64";
    const auto y = read_npy(file);
    ASSERT_TRUE(y.ok()) << y.error().text();
    EXPECT_TRUE(torch::equal(y.value(), x));
    EXPECT_EQ(y.value().sizes(), x.sizes());
  }
}

TEST(Npy, ReadsFortranOrderAndLaterVersions) {
  const auto x = parse_npy(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", 24));
  ASSERT_TRUE(x.ok()) << x.error().text();
  EXPECT_TRUE(torch::equal(x.value(), torch::tensor({{0.0F, 2.0F, 4.0F}, {1.0F, 3.0F, 5.0F}})));
  for (const char major : {'\2', '\3'}) {
    EXPECT_TRUE(parse_npy(npy("{'shape': (1,), 'fortran_order': False, 'descr': '<f4'}", 4, major)).ok());
  }
}

TEST(Npy, NamesWhatIsWrong) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  EXPECT_TRUE(parse_npy(npy(good, 12)).ok());
  EXPECT_NE(npy_error({}).find("not a .npy"), std::string::npos);
  EXPECT_NE(npy_error(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", 24)).find("<f8"), std::string::npos);
  EXPECT_NE(npy_error(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }", 12)).find("float32"), std::string::npos);
  EXPECT_NE(npy_error(npy("{'descr': '<f4', 'shape': (3,), }", 12)).find("fortran_order"), std::string::npos);
  EXPECT_NE(npy_error(npy(good, 8)).find("8 bytes"), std::string::npos);
  EXPECT_NE(npy_error(npy(good, 13)).find("13 bytes"), std::string::npos);
  EXPECT_NE(npy_error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", 12)).find("tuple"), std::string::npos);
  EXPECT_NE(npy_error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3", 12)).find("tuple"), std::string::npos);
  EXPECT_NE(npy_error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': 3}", 12)).find("tuple"), std::string::npos);
  EXPECT_NE(npy_error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 12)).find("does not fit"),
            std::string::npos);
  const std::string many_dims = "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)";
  const std::string large_number = "(" + std::string(66, '1') + ")";
  for (const std::string& shape :
       {std::string("(0, 4294967296, 4294967296)"), std::string("(4294967296, 4294967296, 0)"), large_number, many_dims}) {
    const std::string header = "{'descr': '<f4', 'fortran_order': True, 'shape': " + shape + ", }";
    EXPECT_FALSE(parse_npy(npy(header, shape.starts_with("(1") ? 4 : 0))) << shape;
  }
  EXPECT_NE(npy_error(npy(good, 12, 9)).find("version"), std::string::npos);
  EXPECT_NE(npy_error(npy("{'descr':", 0)).find("expected descr"), std::string::npos);
}

TEST(Npy, EveryTruncationIsAnError) {
  const Bytes bytes = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 12);
  for (std::size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(parse_npy(ByteView(bytes).first(length)).ok()) << length;
}

TEST(File, MissingAndUnwritableFilesAreErrorsThatNameThem) {
  const auto missing = read_file("/nonexistent/x.npy", 100);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("/nonexistent/x.npy"), std::string::npos);
  EXPECT_FALSE(read_file("/", 100).ok());
  EXPECT_FALSE(write_file("/nonexistent/x.npy", {}).ok());
}

TEST(File, StopsReadingAtTheLimit) {
  const testing::TempFolder folder;
  const std::string file = folder.file("limit");
  ASSERT_TRUE(write_file(file, {Bytes(100)}).ok());
  EXPECT_TRUE(read_file(file, 100).ok());
  const auto too_long = read_file(file, 99);
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace epipe::data
