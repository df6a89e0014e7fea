// Every kind of data, opened by its spec: what the samples are, and what is said about files that are missing or broken.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "epipe/base/file.h"
#include "epipe/data/cifar.h"
#include "epipe/data/image/image.h"
#include "epipe/data/npy.h"
#include "epipe/data/open.h"
#include "support/shared.h"
#include "support/temp_folder.h"
#include "support/tiny_bpe.h"

namespace epipe::data {
namespace {

using testing::shared;
using testing::TempFolder;

Splits open(const std::string& spec, DataConfig config = {}) {
  config.spec = spec;
  return open_data(config, DataSpec::Kind::kImages, 1);
}

std::string open_error(const std::string& spec, const DataConfig& config = {}) {
  try {
    open(spec, config);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void expect_error(const std::string& spec, const std::vector<std::string>& parts, const DataConfig& config = {}) {
  const std::string error = open_error(spec, config);
  for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << spec << ": " << error;
}

layer::Batch batch_of(const Dataset& data, std::vector<std::int64_t> ids, BatchContext at = {}) { return data.batch(ids, at); }

void write(const std::string& path, const std::string& text) { ASSERT_TRUE(write_file(path, {std::as_bytes(std::span(text))}).ok()); }

// Records of CIFAR whose label is their number modulo `classes` and whose pixels are all the label's.
std::string cifar_file(int count, int classes, int label_bytes) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (label_bytes == 2) text += '\x13';
    text += static_cast<char>(i % classes);
    text += std::string(kCifarPixels, static_cast<char>(i % classes));
  }
  return text;
}

void write_cifar10(const std::string& folder, int per_file = 12) {
  for (int i = 1; i <= 5; ++i) write(folder + "/data_batch_" + std::to_string(i) + ".bin", cifar_file(per_file, 10, 1));
  write(folder + "/test_batch.bin", cifar_file(7, 10, 1));
}

TEST(Open, ListsWhatItKnows) {
  expect_error("imagenet", {"unknown data \"imagenet\"", "synthetic", "cifar10:DIR", "glue/TASK:DIR", "npy:DIR"});
  expect_error("cifar10", {"expected cifar10:DIR"});
  expect_error("cifar10:", {"expected cifar10:DIR"});
  expect_error("glue/squad:/nonexistent", {"unknown GLUE task"});
}

TEST(Open, RefusesFlagsThatWouldDoNothing) {
  DataConfig config;
  config.image_size = 64;
  expect_error("synthetic", {"--image-size has no meaning"}, config);
  expect_error("glue/rte:/x", {"--image-size has no meaning"}, config);
  config = {};
  config.max_length = 64;
  expect_error("cifar10:/x", {"--max-length has no meaning"}, config);
  config = {};
  config.bpe = "/x";
  expect_error("npy:/x", {"--bpe has no meaning"}, config);
  config = {};
  config.augment = "crop";
  expect_error("npy:/x", {"--augment has no meaning"}, config);
}

TEST(Open, SyntheticIsAsItWas) {
  const Splits splits = open("synthetic");
  const Splits made = make_synthetic(DataSpec::Kind::kImages, 1);
  EXPECT_TRUE(torch::equal(batch_of(*splits.train, {5, 3}).inputs[0], batch_of(*made.train, {5, 3}).inputs[0]));
}

TEST(Open, MissingDataSaysWhatToRun) {
  const TempFolder folder;
  expect_error("cifar10:" + folder.path(), {"data_batch_1.bin", "test_batch.bin", "run `epipe data cifar10 " + folder.path() + "`"});
  write_cifar10(folder.path());
  ASSERT_TRUE(remove_tree(folder.file("data_batch_3.bin")).ok());
  expect_error("cifar10:" + folder.path(), {": data_batch_3.bin missing"});
  expect_error("cifar100:/nonexistent", {"train.bin", "cifar-100-binary.tar.gz"});
  expect_error("food101:/nonexistent", {"meta/classes.txt", "food-101.tar.gz"});
  expect_error("images:/nonexistent", {"/nonexistent/train", "CLASS"});
  expect_error("npy:/nonexistent", {"train_x.npy"});
  expect_error("glue/rte:/nonexistent", {"/nonexistent/RTE/train.tsv", "gluebenchmark.com"});
}

TEST(Cifar, ReadsBothLayouts) {
  const TempFolder folder;
  write_cifar10(folder.path());
  DataConfig config;
  config.augment = "none";
  const Splits ten = open("cifar10:" + folder.path(), config);
  EXPECT_EQ(ten.train->size(), 60);
  EXPECT_EQ(ten.validation->size(), 7);
  EXPECT_EQ(ten.train->spec().classes, 10);
  EXPECT_EQ(ten.train->spec().shape, (std::vector<std::int64_t>{3, 32, 32}));
  const auto batch = batch_of(*ten.train, {3, 13});
  EXPECT_TRUE(torch::equal(batch.targets, torch::tensor({3, 1}, torch::kInt64)));
  EXPECT_FLOAT_EQ(batch.inputs[0][0][0][5][5].item<float>(), (3 / 255.0F - 0.485F) / 0.229F);
  EXPECT_FLOAT_EQ(batch.inputs[0][1][2][0][31].item<float>(), (1 / 255.0F - 0.406F) / 0.225F);

  ASSERT_TRUE(make_folders(folder.file("c100/cifar-100-binary")).ok());
  write(folder.file("c100/cifar-100-binary/train.bin"), cifar_file(101, 100, 2));
  write(folder.file("c100/cifar-100-binary/test.bin"), cifar_file(3, 100, 2));
  config.image_size = 48;
  const Splits hundred = open("cifar100:" + folder.file("c100"), config);
  EXPECT_EQ(hundred.train->spec().classes, 100);
  EXPECT_EQ(batch_of(*hundred.train, {99, 100}).targets[0].item<std::int64_t>(), 99);
  EXPECT_EQ(batch_of(*hundred.train, {99, 100}).inputs[0].sizes(), (std::vector<std::int64_t>{2, 3, 48, 48}));
}

TEST(Cifar, BrokenFilesAreErrorsThatNameThem) {
  const TempFolder folder;
  write_cifar10(folder.path());
  const std::string whole = cifar_file(3, 10, 1);
  write(folder.file("data_batch_2.bin"), whole.substr(0, whole.size() - 1));
  expect_error("cifar10:" + folder.path(), {"data_batch_2.bin", "3073", "9218 bytes"});
  write(folder.file("data_batch_2.bin"), "");
  expect_error("cifar10:" + folder.path(), {"data_batch_2.bin", "0 bytes"});
  std::string label = whole;
  label[3073] = 10;
  write(folder.file("data_batch_2.bin"), label);
  expect_error("cifar10:" + folder.path(), {"data_batch_2.bin", "record 1", "below 10, got 10"});
}

TEST(Cifar, AugmentationIsAFunctionOfSeedEpochStepAndSample) {
  const TempFolder folder;
  write_cifar10(folder.path());
  std::string varied;  // pixels that differ, so that crops do
  for (int i = 0; i < 20; ++i) {
    varied += static_cast<char>(i % 10);
    for (std::size_t p = 0; p < kCifarPixels; ++p) varied += static_cast<char>(p * 31 + static_cast<std::size_t>(i) * 7 + p / 32 * 5);
  }
  write(folder.file("data_batch_1.bin"), varied);
  const Splits splits = open("cifar10:" + folder.path());
  const auto image = [&](std::vector<std::int64_t> ids, std::size_t index, BatchContext at) {
    return batch_of(*splits.train, std::move(ids), at).inputs[0][static_cast<std::int64_t>(index)];
  };
  const BatchContext at{1, 2, 3};
  EXPECT_TRUE(torch::equal(image({4, 5, 6}, 1, at), image({5}, 0, at)));  // whatever else is in the batch
  int same = 0;
  for (const BatchContext other : {BatchContext{9, 2, 3}, BatchContext{1, 9, 3}, BatchContext{1, 2, 9}}) {
    for (std::int64_t id = 0; id < 10; ++id) same += torch::equal(image({id}, 0, at), image({id}, 0, other)) ? 1 : 0;
  }
  EXPECT_LT(same, 6);  // 1 of 162 by chance
  EXPECT_TRUE(torch::equal(batch_of(*splits.validation, {1}, at).inputs[0], batch_of(*splits.validation, {1}, {}).inputs[0]));
}

TEST(Cifar, RealFilesHaveTheKnownFirstLabels) {
  const char* const folder = std::getenv("EPIPE_CIFAR10");
  if (folder == nullptr) GTEST_SKIP() << "set EPIPE_CIFAR10 to a folder made by `epipe data cifar10`";
  const Splits splits = open(std::string("cifar10:") + folder);
  EXPECT_EQ(splits.train->size(), 50'000);
  EXPECT_EQ(splits.validation->size(), 10'000);
  EXPECT_TRUE(torch::equal(batch_of(*splits.train, {0, 1, 2, 3, 4}).targets, torch::tensor({6, 9, 9, 4, 1}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(batch_of(*splits.validation, {0, 1, 2, 3, 4}).targets, torch::tensor({3, 8, 8, 0, 6}, torch::kInt64)));
}

TEST(Food101, ReadsItsOwnLayout) {
  const std::string folder = shared("data/food101-mini");
  EPIPE_SKIP_WITHOUT(folder);
  if (!jpeg_part().available) GTEST_SKIP() << jpeg_part().detail;
  DataConfig config;
  config.image_size = 64;
  const Splits splits = open("food101:" + folder, config);
  EXPECT_EQ(splits.train->size(), 400);
  EXPECT_EQ(splits.validation->size(), 200);
  EXPECT_EQ(splits.train->spec().classes, 10);
  const auto batch = batch_of(*splits.train, {0, 399});
  EXPECT_EQ(batch.inputs[0].sizes(), (std::vector<std::int64_t>{2, 3, 64, 64}));
  EXPECT_TRUE(torch::equal(batch.targets, torch::tensor({0, 9}, torch::kInt64)));
  EXPECT_GT(batch.inputs[0].std().item<float>(), 0.3F);
}

TEST(Food101, BrokenListsAndImagesAreErrors) {
  const TempFolder folder;
  ASSERT_TRUE(make_folders(folder.file("meta")).ok());
  ASSERT_TRUE(make_folders(folder.file("images/pie")).ok());
  write(folder.file("meta/classes.txt"), "pie\ncake\n");
  write(folder.file("meta/train.txt"), "pie/1\n");
  write(folder.file("meta/test.txt"), "soup/1\n");
  expect_error("food101:" + folder.path(), {"test.txt", "soup/1"});
  write(folder.file("meta/test.txt"), "cake/2\r\n");
  const Splits splits = open("food101:" + folder.path());
  EXPECT_EQ(batch_of(*make_synthetic(DataSpec::Kind::kImages, 0).train, {0}).size(), 1);
  EXPECT_THROW(batch_of(*splits.train, {0}), std::runtime_error);  // no such file
  write(folder.file("images/pie/1.jpg"), "\xff\xd8\xff nonsense");
  try {
    batch_of(*splits.train, {0});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("images/pie/1.jpg"), std::string::npos);
  }
}

TEST(ImageFolders, NumberClassesByNameAndTakeImagesOnly) {
  const std::string food = shared("data/food101-mini/images");
  EPIPE_SKIP_WITHOUT(food);
  if (!jpeg_part().available) GTEST_SKIP() << jpeg_part().detail;
  const TempFolder folder;
  for (const char* const name : {"train/n02", "train/n01", "val/n02"}) ASSERT_TRUE(make_folders(folder.file(name)).ok());
  const Bytes jpeg = read_file(food + "/apple_pie/1005649.jpg", 1 << 24).value();
  for (const char* const name : {"train/n02/b.JPEG", "train/n01/a.jpg", "train/n01/c.jpeg", "val/n02/v.JPEG"}) {
    ASSERT_TRUE(write_file(folder.file(name), {jpeg}).ok());
  }
  write(folder.file("train/n01/notes.txt"), "no image");
  write(folder.file("train/readme.txt"), "no folder");
  DataConfig config;
  config.image_size = 32;
  config.augment = "none";
  const Splits splits = open("images:" + folder.path(), config);
  EXPECT_EQ(splits.train->spec().classes, 2);
  EXPECT_TRUE(torch::equal(batch_of(*splits.train, {0, 1, 2}).targets, torch::tensor({0, 0, 1}, torch::kInt64)));
  EXPECT_EQ(batch_of(*splits.validation, {0}).targets.item<std::int64_t>(), 1);
  ASSERT_TRUE(make_folders(folder.file("val/n03")).ok());
  expect_error("images:" + folder.path(), {"val/n03", "no such class"});
}

// The file of the first validation image, which cannot be read.
std::string first_validation_file(const Splits& splits, const std::string& folder) {
  try {
    batch_of(*splits.validation, {0});
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    const std::size_t at = text.find(folder + "/");
    if (at != std::string::npos) return text.substr(at + folder.size() + 1, text.find(".jpg", at) - at - folder.size() - 1);
  }
  return "";
}

TEST(ImageFolders, WithoutTrainAndValAreDividedByName) {
  std::vector<std::string> held_back;
  for (const std::string below : {"", "train/"}) {
    const TempFolder folder;
    for (const std::string name : {"cat", "dog", "emu"}) ASSERT_TRUE(make_folders(folder.file(below + name)).ok());
    for (int k = 0; k < 25; ++k) write(folder.file(fmt::format("{}cat/{}.jpg", below, k)), "");
    for (int k = 0; k < 2; ++k) write(folder.file(fmt::format("{}dog/{}.jpg", below, k)), "");
    write(folder.file(below + "emu/0.jpg"), "");
    const Splits splits = open("images:" + folder.path(), DataConfig{});
    EXPECT_EQ(splits.train->spec().classes, 3);
    EXPECT_EQ(splits.train->size(), 23 + 1 + 1);
    EXPECT_EQ(splits.validation->size(), 2 + 1) << "a tenth of each class, one of two, none of one";
    ASSERT_EQ(splits.notes.size(), 1U);
    EXPECT_NE(splits.notes[0].find("3 of 28 images are kept for validation"), std::string::npos) << splits.notes[0];
    held_back.push_back(first_validation_file(splits, folder.path() + (below.empty() ? "" : "/train")));
  }
  EXPECT_EQ(held_back[0].find("cat/"), 0U) << held_back[0];
  EXPECT_EQ(held_back[0], held_back[1]) << "wherever the folder is";
}

class NpyFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_npy(folder.file("train_x.npy"), torch::arange(24).to(torch::kFloat).reshape({4, 6})).ok());
    ASSERT_TRUE(write_npy(folder.file("val_x.npy"), torch::ones({2, 6})).ok());
    put("train_y", "<i4", "(4,)", std::string("\0\0\0\0\2\0\0\0\1\0\0\0\0\0\0\0", 16));
    put("val_y", "|u1", "(2, 1)", std::string("\4\1", 2));
  }
  void put(const std::string& name, const std::string& type, const std::string& shape, const std::string& values) {
    std::string dict = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
    std::string text = "\x93NUMPY";
    text += {'\1', '\0', static_cast<char>(dict.size()), '\0'};
    write(folder.file(name + ".npy"), text + dict + values);
  }
  TempFolder folder;
};

TEST_F(NpyFolder, TakesWholeNumbersAsClasses) {
  const Splits splits = open("npy:" + folder.path());
  EXPECT_EQ(splits.train->spec().shape, (std::vector<std::int64_t>{6}));
  EXPECT_EQ(splits.train->spec().classes, 5);  // the largest is in the validation set
  EXPECT_FALSE(splits.train->spec().regression);
  const auto batch = batch_of(*splits.train, {1, 0});
  EXPECT_TRUE(torch::equal(batch.targets, torch::tensor({2, 0}, torch::kInt64)));
  EXPECT_EQ(batch.inputs[0][0][0].item<float>(), 6);
}

TEST_F(NpyFolder, TakesFloatsAsValuesToPredict) {
  ASSERT_TRUE(write_npy(folder.file("train_y.npy"), torch::rand({4, 2})).ok());
  expect_error("npy:" + folder.path(), {"train_y.npy and val_y.npy differ"});
  ASSERT_TRUE(write_npy(folder.file("val_y.npy"), torch::rand({2, 2})).ok());
  const Splits splits = open("npy:" + folder.path());
  EXPECT_TRUE(splits.train->spec().regression);
  EXPECT_EQ(splits.train->spec().classes, 2);
  EXPECT_EQ(batch_of(*splits.train, {3}).targets.sizes(), (std::vector<std::int64_t>{1, 2}));
}

TEST_F(NpyFolder, TakesBytesAsImages) {
  put("train_x", "|u1", "(4, 5, 6, 3)", std::string(4 * 5 * 6 * 3, '\xff'));
  put("val_x", "|u1", "(2, 5, 6, 3)", std::string(2 * 5 * 6 * 3, '\0'));
  const Splits splits = open("npy:" + folder.path());
  EXPECT_EQ(splits.train->spec().shape, (std::vector<std::int64_t>{3, 5, 6}));
  EXPECT_TRUE(torch::equal(batch_of(*splits.train, {0}).inputs[0], torch::ones({1, 3, 5, 6})));
}

TEST_F(NpyFolder, WrongCountsAndKindsAreErrorsThatNameTheFile) {
  put("train_y", "<i4", "(3,)", std::string(12, '\0'));
  expect_error("npy:" + folder.path(), {"train_y.npy", "expected 4 targets", "got 3"});
  put("train_y", "<i4", "(4,)", std::string(16, '\xff'));
  expect_error("npy:" + folder.path(), {"train_y.npy", "negative"});
  put("train_y", "<i4", "(4,)", std::string(15, '\0'));
  expect_error("npy:" + folder.path(), {"train_y.npy", "15 bytes"});
  put("train_y", "<c8", "(4,)", std::string(32, '\0'));
  expect_error("npy:" + folder.path(), {"train_y.npy", "<c8"});
  put("train_x", "<i8", "(4, 6)", std::string(192, '\0'));
  expect_error("npy:" + folder.path(), {"train_x.npy", "float32 values or uint8"});
  ASSERT_TRUE(write_npy(folder.file("train_x.npy"), torch::ones({4, 7})).ok());
  put("train_y", "<i4", "(4,)", std::string(16, '\0'));
  expect_error("npy:" + folder.path(), {"differ in shape"});
}

TEST(Glue, OpensTheRealTasks) {
  EPIPE_SKIP_WITHOUT(shared("data/glue"));
  DataConfig config;
  config.max_length = 64;
  const Splits rte = open("glue/rte:" + shared("data/glue"), config);
  EXPECT_EQ(rte.train->size(), 2490);
  EXPECT_EQ(rte.validation->size(), 277);
  EXPECT_EQ(rte.train->spec().vocabulary, 50265);
  EXPECT_EQ(rte.train->spec().max_length(), 64);
  const auto batch = batch_of(*rte.train, {0, 1});
  EXPECT_EQ(batch.inputs[0].sizes(), (std::vector<std::int64_t>{2, 64}));
  EXPECT_TRUE(torch::equal(batch.side[0].to(torch::kBool), batch.inputs[0].ne(1)));  // <pad> is 1
  EXPECT_TRUE(torch::equal(batch.targets, torch::tensor({1, 0}, torch::kInt64)));
  const Splits cola = open("glue/CoLA:" + shared("data/glue/CoLA"));
  EXPECT_EQ(cola.train->size(), 8551);
  EXPECT_EQ(cola.train->spec().metrics[0], "matthews");
  EXPECT_EQ(cola.train->spec().max_length(), 128);
  EXPECT_EQ(open("glue/sst-2:" + shared("data/glue")).train->size(), 67349);
}

TEST(Glue, RegressionHasOneValuePerSample) {
  const TempFolder folder;
  ASSERT_TRUE(make_folders(folder.file("STS-B")).ok());
  ASSERT_TRUE(make_folders(folder.file("roberta-bpe")).ok());
  write(folder.file("STS-B/train.tsv"), "sentence1\tsentence2\tscore\naa\tb\t2.5\n");
  write(folder.file("STS-B/dev.tsv"), "sentence1\tsentence2\tscore\na\tb\t0.25\n");
  expect_error("glue/stsb:" + folder.path(), {"--bpe DIR"}, {});
  write(folder.file("roberta-bpe/vocab.json"), testing::tiny_vocab());
  expect_error("glue/stsb:" + folder.path(), {"merges.txt"});
  write(folder.file("roberta-bpe/merges.txt"), testing::tiny_merges());
  DataConfig config;
  config.max_length = 4;
  expect_error("glue/stsb:" + folder.path(), {"--max-length"}, config);
  config.max_length = 9;
  const Splits splits = open("glue/stsb:" + folder.path(), config);
  EXPECT_TRUE(splits.train->spec().regression);
  EXPECT_EQ(splits.train->spec().classes, 1);
  const auto batch = batch_of(*splits.train, {0});
  EXPECT_TRUE(torch::equal(batch.targets, torch::tensor({{2.5F}})));
  EXPECT_TRUE(torch::equal(batch.inputs[0], torch::tensor({{0, 259, 2, 2, 3 + 'b', 2, 1, 1, 1}}, torch::kInt64)));
}

}  // namespace
}  // namespace epipe::data
