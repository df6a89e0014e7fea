#include "epipe/model/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "epipe/base/file.h"
#include "epipe/model/safetensors_writer.h"
#include "epipe/model/weights.h"
#include "support/temp_folder.h"

namespace epipe::model {
namespace {

Bytes copied_bytes(std::string_view text) {
  const ByteView view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

// A file with this header and so many bytes of values: 0, 1, 0, 1, ...
Bytes file_of(std::string_view json, std::size_t data_bytes = 0) {
  Bytes bytes(8 + json.size() + data_bytes);
  store(MutableBytes(bytes), 0, static_cast<std::uint64_t>(json.size()));
  std::memcpy(bytes.data() + 8, json.data(), json.size());
  for (std::size_t i = 0; i < data_bytes; ++i) bytes[8 + json.size() + i] = std::byte{static_cast<std::uint8_t>(i % 2)};
  return bytes;
}

// {"x": {...}} with one float tensor unless told otherwise.
std::string entry(std::string_view dtype = "F32", std::string_view shape = "[1]", std::string_view offsets = "[0,4]") {
  return fmt::format(R"({{"x":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
}

// Two tensors of 4 bytes at these places.
std::string two(std::string_view a, std::string_view b) {
  return fmt::format(R"({{"a":{{"dtype":"F32","shape":[1],"data_offsets":{}}},"b":{{"dtype":"I32","shape":[1],"data_offsets":{}}}}})", a,
                     b);
}

std::string repeat(std::string_view text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

NamedTensors one_of_each() {
  NamedTensors tensors;
  const auto x = torch::arange(-3, 9).reshape({3, 4});
  for (const auto dtype : {torch::kFloat64, torch::kFloat32, torch::kFloat16, torch::kBFloat16, torch::kInt64, torch::kInt32, torch::kInt16,
                           torch::kInt8, torch::kUInt8, torch::kBool}) {
    tensors[fmt::format("{}", c10::toString(dtype))] = x.to(dtype);
  }
  tensors["scalar"] = torch::tensor(0.1);
  tensors["empty"] = torch::zeros({2, 0, 3}, torch::kFloat64);
  tensors["\"quoted\" \\ \n\x01 \xc3\xa9"] = torch::tensor({1.0F});
  return tensors;
}

void expect_same_tensors(const NamedTensors& got, const NamedTensors& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, x] : expected) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(got.at(name).scalar_type(), x.scalar_type()) << name;
    EXPECT_EQ(got.at(name).sizes(), x.sizes()) << name;
    EXPECT_TRUE(torch::equal(got.at(name), x)) << name;
  }
}

TEST(SafeTensors, GiveBackEveryDtypeShapeAndName) {
  const testing::TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  const Metadata metadata = {{"format", "pt"}, {"note", "\"two\"\nlines"}};
  ASSERT_TRUE(write_safetensors(path, one_of_each(), metadata).ok());
  const auto file = read_safetensors(path);
  ASSERT_TRUE(file.ok()) << file.error().text();
  EXPECT_EQ(file.value().metadata, metadata);
  expect_same_tensors(file.value().tensors, one_of_each());
}

TEST(SafeTensors, AreTheBytesTheReferenceImplementationWrites) {
  EXPECT_EQ(serialize_safetensors({}).value(), copied_bytes(std::string_view("\x08\0\0\0\0\0\0\0{}      ", 16)));
  const NamedTensors tensors = {{"b", torch::tensor({1.0F})}, {"a", torch::zeros({2}, torch::kUInt8)}, {"c", torch::tensor({7})}};
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"c":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},"a":{"dtype":"U8","shape":[2],"data_offsets":[12,14]}}       )";
  ASSERT_EQ(json.size() % 8, 0);
  Bytes expected = file_of(json);
  append(expected, std::int64_t{7});
  append(expected, 1.0F);
  append(expected, std::uint16_t{0});
  EXPECT_EQ(serialize_safetensors(tensors, {{"format", "pt"}}).value(), expected);
}

TEST(SafeTensors, AlignEveryTensorAndNotDependOnStrides) {
  NamedTensors strided = one_of_each();
  for (auto& [name, x] : strided) {
    if (x.dim() == 2) x = x.t().contiguous().t();
  }
  const auto bytes = serialize_safetensors(strided);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes.value(), serialize_safetensors(one_of_each()).value());
  EXPECT_EQ(load<std::uint64_t>(bytes.value(), 0) % 8, 0);
  NamedTensors with_grad = {{"x", torch::ones({2}).requires_grad_()}};
  EXPECT_EQ(serialize_safetensors(with_grad).value(), serialize_safetensors({{"x", torch::ones({2})}}).value());
}

TEST(SafeTensors, OutliveTheBufferWhereverItLies) {
  const Bytes bytes = serialize_safetensors(one_of_each()).value();
  SafeTensors file;
  for (std::size_t shift = 0; shift < 8; ++shift) {
    Bytes shifted(shift);
    shifted.insert(shifted.end(), bytes.begin(), bytes.end());
    file = parse_safetensors(ByteView(shifted).subspan(shift)).value();
    std::fill(shifted.begin(), shifted.end(), std::byte{0xff});
    expect_same_tensors(file.tensors, one_of_each());
  }
}

TEST(SafeTensors, AreReadInAnyOrderWithEmptyTensorsBetween) {
  EXPECT_TRUE(parse_safetensors(file_of(two("[4,8]", "[0,4]"), 8)).ok());
  EXPECT_TRUE(parse_safetensors(file_of("{}")).ok());
  EXPECT_TRUE(parse_safetensors(file_of("{ \"__metadata__\" : { } } \n")).ok());
  const auto file = parse_safetensors(file_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
    "none":{"data_offsets":[4,4],"shape":[0,5],"dtype":"F64"},"y":{"dtype":"I8","shape":[3],"data_offsets":[4,7]}})",
                                              7));
  ASSERT_TRUE(file.ok()) << file.error().text();
  EXPECT_TRUE(torch::equal(file.value().tensors.at("y"), torch::tensor({0, 1, 0}, torch::kInt8)));
}

struct Attack {
  const char* name;
  Bytes bytes;
  std::string reason;  // part of the message
  ErrorCode code = ErrorCode::kBadFile;
};

std::vector<Attack> attacks() {
  const std::string x = R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const auto length = [](std::uint64_t value) {
    Bytes bytes;
    append(bytes, value);
    return bytes;
  };
  return {
      {"Nothing", {}, "8 bytes of header length, got 0", ErrorCode::kTruncated},
      {"HalfALength", Bytes(4), "8 bytes of header length, got 4", ErrorCode::kTruncated},
      {"HeaderAboveTheLimit", length(100'000'001), "at most 100000000 bytes, got 100000001", ErrorCode::kTooLarge},
      {"HeaderLengthOfAllOnes", length(~std::uint64_t{0}), "18446744073709551615", ErrorCode::kTooLarge},
      {"HeaderLongerThanTheFile", length(100'000'000), "only 0 follow", ErrorCode::kTruncated},
      {"EmptyHeader", length(0), "begin with {"},
      {"HeaderIsAnArray", file_of("[]"), "begin with {"},
      {"HeaderAfterAByteOrderMark", file_of("\xef\xbb\xbf{}"), "begin with {"},
      {"CutJson", file_of("{" + x, 4), "not valid JSON"},
      {"TwoObjects", file_of("{}{}"), "not valid JSON"},
      {"BytesAfterAZero", file_of(std::string_view("{}\0}", 4)), "byte 3: a zero"},
      {"NotUtf8", file_of("{\"\xff\":1}"), "UTF-8"},
      {"OverlongUtf8", file_of("{\"\xc0\xaf\":1}"), "UTF-8"},
      {"HalfASurrogate", file_of(R"({"\ud800":1})"), "not valid JSON"},
      {"NumberBeyondDouble", file_of(R"({"x":1e999})"), "not valid JSON"},
      {"TensorTwice", file_of("{" + x + "," + x + "}", 4), "names \"x\" twice"},
      {"TensorTwiceByEscape", file_of("{" + x + R"(,"\u0078":{}})", 4), "names \"x\" twice"},
      {"MetadataTwice", file_of(R"({"__metadata__":{},"__metadata__":{}})"), "names \"__metadata__\" twice"},
      {"MetadataKeyTwice", file_of(R"({"__metadata__":{"a":"1","a":"2"}})"), "\"a\" of __metadata__ is given twice"},
      {"DtypeTwice", file_of(R"({"x":{"dtype":"F32","dtype":"F32"}})"), "dtype of tensor \"x\" is given twice"},
      {"ShapeTwice", file_of(R"({"x":{"shape":[],"shape":[]}})"), "shape of tensor \"x\" is given twice"},
      {"OffsetsTwice", file_of(R"({"x":{"data_offsets":[],"data_offsets":[]}})"), "data_offsets of tensor \"x\" is given twice"},
      {"MetadataIsNoObject", file_of(R"({"__metadata__":"a"})"), "an object for __metadata__, got a string"},
      {"MetadataIsNoString", file_of(R"({"__metadata__":{"a":1}})"), "a string for \"a\" of __metadata__, got a number"},
      {"MetadataNests", file_of(R"({"__metadata__":{"a":{}}})"), "got an object"},
      {"TensorIsNoObject", file_of(R"({"x":null})"), "an object for tensor \"x\", got null"},
      {"UnknownField", file_of(R"({"x":{"stride":[1]}})"), "unknown field \"stride\" of tensor \"x\""},
      {"NoDtype", file_of(R"({"x":{"shape":[1],"data_offsets":[0,4]}})", 4), "got no dtype"},
      {"NoShape", file_of(R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", 4), "got no shape"},
      {"NoOffsets", file_of(R"({"x":{"dtype":"F32","shape":[1]}})", 4), "got no data_offsets"},
      {"UnknownDtype", file_of(entry("F8_E4M3"), 4), "unknown dtype \"F8_E4M3\""},
      {"DtypeIsNoString", file_of(R"({"x":{"dtype":32}})"), "a string for dtype of tensor \"x\", got a number"},
      {"DtypeIsAnArray", file_of(R"({"x":{"dtype":[32]}})"), "a string for dtype of tensor \"x\", got an array"},
      {"ShapeIsNoArray", file_of(R"({"x":{"shape":"1"}})"), "an array for shape of tensor \"x\", got a string"},
      {"NegativeSize", file_of(entry("F32", "[-1]"), 4), "whole numbers for shape of tensor \"x\", got a negative number"},
      {"FractionalSize", file_of(entry("F32", "[1.0]"), 4), "got a fraction"},
      {"SizeAbove64Bits", file_of(entry("F32", "[18446744073709551616]"), 4), "too large a number"},
      {"BooleanSize", file_of(entry("F32", "[true]"), 4), "got true or false"},
      {"ShapeOverflows", file_of(entry("F32", "[4294967296,4294967296]"), 4), "overflows"},
      {"ShapeOverflowsWithItsDtype", file_of(entry("F32", "[4611686018427387905]"), 4), "overflows"},
      {"ShapeOverflowsTheSign", file_of(entry("U8", "[9223372036854775808]"), 4), "overflows"},
      {"EmptyShapeOverflows", file_of(entry("F32", "[0,4294967296,4294967296]", "[0,0]")), "overflows"},
      {"TooManyDimensions", file_of(entry("F32", repeat("1,", 64).insert(0, 1, '[').append("1]")), 4), "more than 64 numbers in shape"},
      {"OneOffset", file_of(entry("F32", "[1]", "[0]"), 4), "2 data_offsets for tensor \"x\", got 1"},
      {"ThreeOffsets", file_of(entry("F32", "[1]", "[0,4,8]"), 4), "2 data_offsets for tensor \"x\", got 3"},
      {"EndBeforeBegin", file_of(entry("F32", "[1]", "[4,0]"), 4), "end at 0, before they begin at 4"},
      {"LengthTooShort", file_of(entry("F32", "[2]"), 4), "expected 8 bytes for tensor \"x\" of shape [2] and dtype F32"},
      {"LengthTooLong", file_of(entry("U8", "[]"), 4), "expected 1 bytes"},
      {"BeyondTheData", file_of(entry(), 3), "ends at byte 4 of the data, but the file has only 3", ErrorCode::kTruncated},
      {"FarBeyondTheData", file_of(entry("U8", "[9223372036854775807]", "[0,9223372036854775807]"), 4), "only 4", ErrorCode::kTruncated},
      {"HoleInFront", file_of(entry("F32", "[1]", "[4,8]"), 8), "no tensor covers bytes 0 to 4"},
      {"HoleBetween", file_of(two("[0,4]", "[5,9]"), 9), "no tensor covers bytes 4 to 5"},
      {"Overlap", file_of(two("[0,4]", "[3,7]"), 7), "tensor \"b\" overlaps"},
      {"SameBytesTwice", file_of(two("[0,4]", "[0,4]"), 4), "tensor \"b\" overlaps"},
      {"BytesBehind", file_of(entry(), 5), "1 bytes behind the last tensor"},
      {"BytesWithoutTensors", file_of("{}", 5), "5 bytes behind the last tensor"},
      {"DeepArrays", file_of("{\"x\":" + repeat("[", 1'000'000)), "an object for tensor \"x\", got an array"},
      {"DeepObjects", file_of(repeat("{\"x\":", 1'000'000)), "unknown field"},
      {"DeepShape", file_of(R"({"x":{"shape":)" + repeat("[", 1'000'000)), "whole numbers for shape of tensor \"x\", got an array"},
      {"DeepMetadata", file_of(R"({"__metadata__":)" + repeat("{\"x\":", 1'000'000)), "got an object"},
      {"LongNameStaysOutOfTheMessage", file_of("{\"" + repeat("n", 1'000'000) + "\":1}"), "nnn...\""},
      {"ControlCharactersStayOutOfTheMessage", file_of(R"({"\u001b[2J\n":1})"), "\"?[2J?\""},
  };
}

class SafeTensorsAttack : public ::testing::TestWithParam<Attack> {};
INSTANTIATE_TEST_SUITE_P(Attacks, SafeTensorsAttack, ::testing::ValuesIn(attacks()), [](const auto& attack) { return attack.param.name; });

TEST_P(SafeTensorsAttack, IsANamedError) {
  const auto file = parse_safetensors(GetParam().bytes);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, GetParam().code);
  EXPECT_NE(file.error().message.find(GetParam().reason), std::string::npos) << file.error().message;
  EXPECT_LT(file.error().message.size(), 500);
}

TEST(SafeTensors, HoldOnlyZeroAndOneAsBool) {
  Bytes bytes = file_of(entry("BOOL", "[2]", "[0,2]"), 2);
  EXPECT_TRUE(parse_safetensors(bytes).ok());
  bytes.back() = std::byte{2};
  ASSERT_FALSE(parse_safetensors(bytes).ok());
  EXPECT_NE(parse_safetensors(bytes).error().message.find("bytes 0 and 1 in tensor \"x\""), std::string::npos);
}

TEST(SafeTensors, AreAnErrorWhenCutAnywhere) {
  const Bytes bytes = serialize_safetensors(one_of_each()).value();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(parse_safetensors(ByteView(bytes).first(length)).ok()) << length;
  }
}

TEST(SafeTensors, ThatCannotBeReadBackAreNotWritten) {
  const auto error_of = [](const NamedTensors& tensors, const Metadata& metadata = {}) {
    const auto bytes = serialize_safetensors(tensors, metadata);
    EXPECT_FALSE(bytes.ok());
    return bytes.ok() ? "" : bytes.error().message;
  };
  const auto x = torch::ones({2});
  EXPECT_NE(error_of({{"__metadata__", x}}).find("__metadata__"), std::string::npos);
  EXPECT_NE(error_of({{"\xff", x}}).find("UTF-8"), std::string::npos);
  EXPECT_NE(error_of({}, {{"a", "\xff"}}).find("UTF-8"), std::string::npos);
  EXPECT_NE(error_of({{"x", torch::Tensor()}}).find("dense"), std::string::npos);
  EXPECT_NE(error_of({{"x", x.to_sparse()}}).find("dense"), std::string::npos);
  EXPECT_NE(error_of({{"x", x.to(torch::kComplexFloat)}}).find("ComplexFloat"), std::string::npos);
  EXPECT_NE(error_of({{"x", torch::ones(std::vector<std::int64_t>(65, 1))}}).find("at most 64 dimensions"), std::string::npos);
  EXPECT_NE(error_of({}, {{"a", std::string(100'000'000, 'a')}}).find("at most 100000000"), std::string::npos);
}

TEST(SafeTensors, ErrorsNameTheFile) {
  const testing::TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  EXPECT_EQ(read_safetensors(path).error().code, ErrorCode::kIo);
  ASSERT_TRUE(write_file(path, {Bytes(4)}).ok());
  EXPECT_NE(read_safetensors(path).error().message.find(path), std::string::npos);
  EXPECT_NE(write_safetensors(path, {{"x", torch::Tensor()}}).error().message.find(path), std::string::npos);
}

TEST(SafeTensors, ThatComeOneAfterTheOtherMakeTheSameFile) {
  const testing::TempFolder folder;
  const Metadata metadata = {{"model", "cnn"}};
  ASSERT_TRUE(write_safetensors(folder.file("whole"), one_of_each(), metadata).ok());
  {
    SafetensorsWriter writer(folder.file("pieces"));
    auto tensors = one_of_each();
    while (!tensors.empty()) {
      NamedTensors one;
      one.insert(tensors.extract(std::prev(tensors.end())));
      ASSERT_TRUE(writer.add(one).ok());
      EXPECT_EQ(list_folder(folder.path()).size(), 1U) << "a run that is killed now leaves nothing";
    }
    EXPECT_FALSE(writer.add({{"scalar", torch::tensor(1.0)}}).ok()) << "no name twice";
    ASSERT_TRUE(writer.finish(metadata).ok());
  }
  EXPECT_EQ(read_file(folder.file("pieces"), 1 << 20).value(), read_file(folder.file("whole"), 1 << 20).value());
  SafetensorsWriter nowhere(folder.file("no/such/folder"));
  EXPECT_EQ(nowhere.add(one_of_each()).error().code, ErrorCode::kIo);
}

TEST(SafeTensors, OfAMappedFileHaveTheValuesOfTheFile) {
  const testing::TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  ASSERT_TRUE(write_safetensors(path, one_of_each()).ok());
  auto mapped = map_weights(path);
  ASSERT_TRUE(mapped.ok()) << mapped.error().text();
  expect_same_tensors(mapped.value().tensors, one_of_each());
  mapped.value().files.at(0)->forget_pages();
  expect_same_tensors(mapped.value().tensors, one_of_each());
  mapped.value().files.clear();
  expect_same_tensors(mapped.value().tensors, one_of_each());  // they keep the file
  const std::string json = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  ASSERT_TRUE(write_file(path, {file_of(json, 5)}).ok());
  const auto unaligned = map_weights(path);
  ASSERT_TRUE(unaligned.ok()) << unaligned.error().text();
  expect_same_tensors(unaligned.value().tensors, read_safetensors(path).value().tensors);
  ASSERT_TRUE(write_file(path, {Bytes(4)}).ok());
  EXPECT_NE(map_weights(path).error().message.find(path), std::string::npos);
  EXPECT_EQ(map_weights(folder.file("absent")).error().code, ErrorCode::kIo);
  EXPECT_NE(map_weights(folder.path()).error().message.find("neither is there"), std::string::npos);
}

TEST(LoadInto, CopiesValuesIntoTheExistingTensors) {
  const auto weight = torch::zeros({2, 3}).requires_grad_();
  const auto half = torch::zeros({2}, torch::kFloat16);
  const NamedTensors to = {{"weight", weight}, {"half", half}};
  ASSERT_TRUE(load_into({{"weight", torch::arange(6.0).reshape({2, 3})}, {"half", torch::tensor({1.5, -2.0})}}, to).ok());
  EXPECT_TRUE(torch::equal(weight, torch::arange(6.0F).reshape({2, 3})));
  EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
  EXPECT_TRUE(torch::equal(half, torch::tensor({1.5F, -2.0F}).to(torch::kFloat16)));
}

TEST(LoadInto, ListsEverythingThatDoesNotFitAndChangesNothing) {
  const auto kept = torch::zeros({2});
  const NamedTensors to = {{"a", torch::zeros({2, 3})}, {"b", kept}, {"d", torch::zeros({1})}};
  const auto loaded = load_into({{"a", torch::ones({3, 2})}, {"b", torch::ones({2})}, {"c", torch::ones({1})}}, to);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().message,
            "the weights do not fit the model: \"a\": expected shape [2, 3], got [3, 2]; \"c\": extra; \"d\": missing");
  EXPECT_TRUE(torch::equal(kept, torch::zeros({2})));
}

TEST(LoadInto, ListsAtMostTwenty) {
  NamedTensors to;
  for (int i = 0; i < 20; ++i) to[fmt::format("{:02}", i)] = torch::zeros({1});
  EXPECT_TRUE(load_into({}, to).error().message.ends_with("\"18\": missing; \"19\": missing"));
  to["20"] = to["21"] = torch::zeros({1});
  EXPECT_TRUE(load_into({}, to).error().message.ends_with("\"18\": missing; \"19\": missing; and 2 more"));
}

// Files that other programs wrote. They are not part of the repository: EPIPE_SHARED names the folder that holds them (default: shared
// beside the checkout).
class RealFile : public ::testing::Test {
 protected:
  static SafeTensors read(const std::string& name) {
    const auto file = read_safetensors(path(name));
    EXPECT_TRUE(file.ok()) << file.error().text();
    return file.ok() ? file.value() : SafeTensors{};
  }
  static std::string path(const std::string& name) {
    const char* const folder = std::getenv("EPIPE_SHARED");
    return ((folder != nullptr ? std::filesystem::path(folder) : std::filesystem::path(EPIPE_SOURCE_DIR).parent_path() / "shared") / name)
        .string();
  }
  static bool absent(const std::string& name) { return !std::filesystem::exists(path(name)); }
};

// First value, value at a third of the length, last value and sum, as Python's struct reads them.
void expect_values(const torch::Tensor& x, torch::IntArrayRef shape, double first, double third, double last, double sum) {
  EXPECT_EQ(x.sizes(), shape);
  const auto flat = x.flatten().to(torch::kFloat64);
  EXPECT_EQ(flat[0].item<double>(), first);
  EXPECT_EQ(flat[x.numel() / 3].item<double>(), third);
  EXPECT_EQ(flat[-1].item<double>(), last);
  EXPECT_NEAR(flat.sum().item<double>(), sum, 1e-9);
}

constexpr const char* kMobileNet = "weights/mobilenet_v2.safetensors";
constexpr const char* kRoberta = "reference/roberta_small/all.safetensors";

TEST_F(RealFile, MobileNetHasTheValuesPythonReads) {
  if (absent(kMobileNet)) GTEST_SKIP() << "no " << path(kMobileNet) << "; set EPIPE_SHARED";
  const SafeTensors file = read(kMobileNet);
  ASSERT_EQ(file.tensors.size(), 314);
  EXPECT_EQ(file.metadata.at("format"), "pt");
  expect_values(file.tensors.at("features.0.0.weight"), {32, 3, 3, 3}, 0.0018972903490066528, 0.011585469357669353, 0.016993703320622444,
                -0.9755849971725183);
  expect_values(file.tensors.at("features.18.1.running_var"), {1280}, 1.7305665016174316, 2.2239298820495605, 1.8642759323120117,
                2377.974287390709);
  expect_values(file.tensors.at("classifier.1.weight"), {1000, 1280}, -0.0311737060546875, -0.0210723876953125, -0.0253448486328125,
                0.1443570852279663);
  EXPECT_EQ(file.tensors.at("features.18.1.num_batches_tracked").scalar_type(), torch::kInt64);
}

TEST_F(RealFile, RobertaHasTheValuesPythonReads) {
  if (absent(kRoberta)) GTEST_SKIP() << "no " << path(kRoberta) << "; set EPIPE_SHARED";
  const SafeTensors file = read(kRoberta);
  ASSERT_EQ(file.tensors.size(), 119);
  expect_values(file.tensors.at("ref.input_ids"), {6, 24}, 0, 0, 1, 7345);
  expect_values(file.tensors.at("ref.logits"), {6, 2}, 1.2105975151062012, 1.2799745798110962, -0.024283815175294876, 4.90255157276988);
  expect_values(file.tensors.at("roberta.encoder.layer.2.output.dense.weight"), {48, 96}, 0.4257315695285797, 0.12100787460803986,
                -0.20187436044216156, 16.402340250480847);
}

TEST_F(RealFile, RoundTripsEqual) {
  for (const char* const name : {kMobileNet, kRoberta}) {
    if (absent(name)) GTEST_SKIP() << "no " << path(name) << "; set EPIPE_SHARED";
    const SafeTensors file = read(name);
    const auto again = parse_safetensors(serialize_safetensors(file.tensors, file.metadata).value());
    ASSERT_TRUE(again.ok()) << again.error().text();
    expect_same_tensors(again.value().tensors, file.tensors);
    EXPECT_EQ(again.value().metadata, file.metadata);
  }
}

TEST_F(RealFile, OfTheReferenceImplementationIsWrittenBackByteForByte) {
  if (absent(kRoberta)) GTEST_SKIP() << "no " << path(kRoberta) << "; set EPIPE_SHARED";
  const SafeTensors file = read(kRoberta);
  EXPECT_TRUE(serialize_safetensors(file.tensors, file.metadata).value() == read_file(path(kRoberta), 1 << 24).value());
}

}  // namespace
}  // namespace epipe::model
