// Image files and transforms, against PIL and torchvision where Debian's python3-torchvision is installed.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "epipe/base/file.h"
#include "epipe/data/image/image.h"
#include "epipe/data/image/recipe.h"
#include "epipe/data/image/transforms.h"
#include "support/shared.h"
#include "support/temp_folder.h"

namespace epipe::data {
namespace {

using nlohmann::json;
using testing::TempFolder;

bool operator==(const Image& a, const Image& b) { return a.width == b.width && a.height == b.height && a.pixels == b.pixels; }

Image noise(std::int64_t width, std::int64_t height, unsigned seed = 1) {
  std::mt19937 random(seed);
  Image image(width, height);
  for (auto& pixel : image.pixels) pixel = static_cast<std::uint8_t>(random());
  return image;
}

Bytes must_read(const std::string& path) {
  auto bytes = read_file(path, std::uint64_t{1} << 30);
  EXPECT_TRUE(bytes.ok()) << bytes.error().message;
  return std::move(bytes).value();
}

Image read_raw(const std::string& path) {
  const Bytes bytes = must_read(path);
  Image image(load<std::int32_t>(bytes, 0), load<std::int32_t>(bytes, 4));
  EXPECT_EQ(bytes.size(), image.pixels.size() + 8);
  std::memcpy(image.pixels.data(), bytes.data() + 8, image.pixels.size());
  return image;
}

Image run_op(const std::string& op, const Image& in, const std::vector<std::int64_t>& a) {
  if (op == "resize") return resize(in, a[0], a[1]);
  if (op == "resize_shorter") return resize_shorter(in, a[0]);
  if (op == "center_crop") return center_crop(in, a[0]);
  if (op == "flip") return flip(in);
  if (op == "pad") return pad(in, a[0], a[1], a[2], a[3]);
  if (op == "crop") return crop(in, {a[0], a[1], a[2], a[3]});
  if (op == "resized_crop") return resize(crop(in, {a[0], a[1], a[2], a[3]}), a[4], a[4]);
  Draws draws(0);
  if (op == "evaluation") return apply({Recipe::Kind::kCenter, a[0]}, in, draws);
  throw std::runtime_error("no operation " + op);
}

void check(const json& c, const std::string& folder) {
  const std::string op = c["op"];
  if (op == "random_resized_crop") {
    Draws draws(c["key"].get<std::uint64_t>());
    const Box box = random_resized_crop(c["size"][0], c["size"][1], draws);
    EXPECT_EQ((std::vector<std::int64_t>{box.top, box.left, box.height, box.width}), c["box"].get<std::vector<std::int64_t>>()) << c.dump();
  } else if (op == "normalize") {
    const Image image = read_raw(folder + "/" + c["in"].get<std::string>());
    std::vector<float> values(image.pixels.size());
    normalize_into(image, values.data());
    const Bytes expected = must_read(folder + "/" + c["out"].get<std::string>());
    ASSERT_EQ(expected.size(), values.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(expected.data(), values.data(), expected.size()), 0);
  } else {
    const Image expected = read_raw(folder + "/" + c["out"].get<std::string>());
    const Image got = op == "decode" ? read_image(folder + "/" + c["file"].get<std::string>()).value()
                                     : run_op(op, read_raw(folder + "/" + c["in"].get<std::string>()), c["args"]);
    EXPECT_TRUE(got == expected) << c.dump();
  }
}

TEST(Torchvision, MakesTheSamePixels) {
  const TempFolder folder;
  const int status = std::system(
      ("/usr/bin/env PATH=/usr/bin:$PATH python3 " EPIPE_SOURCE_DIR "/tests/data/torchvision_cases.py " + folder.path()).c_str());
  if (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127) GTEST_SKIP() << "python3-torchvision is not installed";
  ASSERT_EQ(status, 0);
  std::ifstream cases(folder.file("cases.jsonl"));
  std::size_t count = 0;
  for (std::string line; std::getline(cases, line); ++count) check(json::parse(line), folder.path());
  EXPECT_GT(count, 500U);
}

TEST(Resize, KeepsAnImageOfTheRightSizeAndConstantColours) {
  const Image image = noise(13, 9);
  EXPECT_TRUE(resize(image, 13, 9) == image);
  Image grey(50, 30);
  std::fill(grey.pixels.begin(), grey.pixels.end(), std::uint8_t{200});
  for (const auto& [w, h] : {std::pair{224, 224}, std::pair{3, 2}, std::pair{50, 7}}) {
    const Image resized = resize(grey, w, h);
    EXPECT_EQ(resized.pixels, std::vector<std::uint8_t>(static_cast<std::size_t>(w * h * 3), 200));
  }
}

TEST(Flip, TwiceIsTheImage) {
  const Image image = noise(6, 4);
  EXPECT_FALSE(flip(image) == image);
  EXPECT_TRUE(flip(flip(image)) == image);
}

TEST(Draws, DependOnTheKeyAndCoverTheirRange) {
  Draws a(5);
  Draws b(5);
  Draws c(6);
  EXPECT_EQ(a.unit(), b.unit());
  EXPECT_NE(a.unit(), c.unit());
  std::vector<int> seen(9);
  for (int i = 0; i < 1000; ++i) ++seen[static_cast<std::size_t>(a.below(9))];
  for (const int count : seen) EXPECT_GT(count, 60);
}

TEST(Recipes, AugmentOnlyTraining) {
  using Kind = Recipe::Kind;
  EXPECT_EQ(choose_recipes("auto", true, 32).train.kind, Kind::kPaddedCrop);
  EXPECT_EQ(choose_recipes("auto", true, 32).validation.kind, Kind::kWhole);
  EXPECT_EQ(choose_recipes("auto", false, 224).train.kind, Kind::kResizedCrop);
  EXPECT_EQ(choose_recipes("auto", false, 224).validation.kind, Kind::kCenter);
  EXPECT_EQ(choose_recipes("none", false, 224).train.kind, Kind::kCenter);
  EXPECT_EQ(choose_recipes("resized-crop", true, 224).validation.kind, Kind::kCenter);
  EXPECT_EQ(choose_recipes("crop", false, 224).train.kind, Kind::kRandomCrop);
  EXPECT_THROW(choose_recipes("mixup", false, 224), std::invalid_argument);
}

TEST(Recipes, GiveTheAskedSizeAndDependOnTheDrawsOnly) {
  for (const Recipe::Kind kind :
       {Recipe::Kind::kWhole, Recipe::Kind::kCenter, Recipe::Kind::kPaddedCrop, Recipe::Kind::kRandomCrop, Recipe::Kind::kResizedCrop}) {
    for (const std::int64_t size : {16, 48}) {
      Draws first(3);
      Draws again(3);
      const Image image = noise(40, 32);
      const Image made = apply({kind, size}, image, first);
      EXPECT_EQ(std::pair(made.width, made.height), std::pair(size, size));
      EXPECT_TRUE(made == apply({kind, size}, image, again));
    }
  }
}

TEST(PaddedCrop, MovesTheImageByUpToFourPixels) {
  const Image image = noise(32, 32);
  std::set<std::pair<std::int64_t, std::int64_t>> offsets;
  for (std::uint64_t key = 0; key < 300; ++key) {
    Draws draws(key);
    const Image made = apply({Recipe::Kind::kPaddedCrop, 32}, image, draws);
    bool found = false;
    for (std::int64_t top = 0; top <= 8 && !found; ++top) {
      for (std::int64_t left = 0; left <= 8 && !found; ++left) {
        const Image moved = crop(pad(image, 4, 4, 4, 4), {top, left, 32, 32});
        found = made == moved || made == flip(moved);
        if (found) offsets.emplace(top, left);
      }
    }
    EXPECT_TRUE(found) << key;
  }
  EXPECT_GT(offsets.size(), 70U);  // of 81
}

TEST(Jpeg, BrokenFilesAreErrors) {
  if (!jpeg_part().available) GTEST_SKIP() << jpeg_part().detail;
  const std::string path = testing::shared("data/food101-mini/images/apple_pie/1005649.jpg");
  EPIPE_SKIP_WITHOUT(path);
  const Bytes bytes = must_read(path);
  const auto whole = decode_jpeg(bytes);
  ASSERT_TRUE(whole.ok()) << whole.error().text();
  EXPECT_GT(whole.value().width, 100);
  for (const std::size_t length : {std::size_t{0}, std::size_t{2}, std::size_t{100}, bytes.size() / 2, bytes.size() - 100}) {
    const auto cut = decode_jpeg(ByteView(bytes).first(length));
    ASSERT_FALSE(cut.ok()) << length;
    EXPECT_NE(cut.error().message.find("JPEG"), std::string::npos) << cut.error().message;
  }
}

TEST(Image, FilesOfNoKnownKindAreErrorsThatNameThem) {
  const TempFolder folder;
  ASSERT_TRUE(write_file(folder.file("x.jpg"), {std::as_bytes(std::span("GIF89a"))}).ok());
  const auto image = read_image(folder.file("x.jpg"));
  ASSERT_FALSE(image.ok());
  EXPECT_NE(image.error().message.find("x.jpg"), std::string::npos);
  EXPECT_FALSE(decode_png(std::as_bytes(std::span("\x89PNG\r\n\x1a\nxxxxxxxxxxxx"))).ok());
}

}  // namespace
}  // namespace epipe::data
