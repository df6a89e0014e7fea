// State dicts by torch.save: what they hold is read, what they ask for is never done.
#include "epipe/model/state_dict.h"

#include <gtest/gtest.h>

#include <cstring>

#include "epipe/base/file.h"
#include "epipe/model/pickle.h"
#include "epipe/model/weights.h"
#include "epipe/model/zip.h"
#include "support/python.h"
#include "support/state_dicts.h"
#include "support/temp_folder.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;

std::string error_of(const std::string& archive) {
  const auto read = parse_state_dict(bytes_of(archive));
  return read ? "no error" : read.error().message;
}

// A state dict whose pickle is given, with a storage of four floats.
std::string with_pickle(const std::string& pickle) { return zip_of({{"m/data.pkl", pickle}, {"m/data/0", float_bytes({1, 2, 3, 4})}}); }

TEST(StateDict, GivesTensorsWithTheirStridesAndOffsets) {
  const auto read =
      parse_state_dict(bytes_of(with_pickle(pickle_of({{"a", {0, {2, 2}, {2, 1}}}, {"b", {1, {2}, {2}}}, {"c", {3, {}, {}}}}))));
  ASSERT_TRUE(read.ok()) << read.error().text();
  ASSERT_EQ(read.value().size(), 3U);
  EXPECT_TRUE(torch::equal(read.value().at("a"), torch::tensor({1.F, 2.F, 3.F, 4.F}).view({2, 2})));
  EXPECT_TRUE(torch::equal(read.value().at("b"), torch::tensor({2.F, 4.F})));
  EXPECT_TRUE(torch::equal(read.value().at("c"), torch::tensor(4.F)));
}

TEST(StateDict, OfPythonsOwnTorchSaveIsRead) {
  if (!python_has("torch")) GTEST_SKIP() << "no PyTorch for " << python();
  const TempFolder folder;
  run_python("save_state_dicts.py", folder.path(), folder.file("log"));
  if (HasFatalFailure()) return;
  const auto plain = read_weights(folder.file("plain.pth"));
  ASSERT_TRUE(plain.ok()) << plain.error().text();
  const auto& tensors = plain.value();
  EXPECT_TRUE(torch::equal(tensors.at("float"), torch::arange(6, torch::kFloat32).view({2, 3})));
  EXPECT_TRUE(torch::equal(tensors.at("transposed"), torch::arange(6, torch::kFloat32).view({2, 3}).t()));
  EXPECT_TRUE(torch::equal(tensors.at("half"), torch::full({2}, 0.5, torch::kHalf)));
  EXPECT_TRUE(torch::equal(tensors.at("bfloat16"), torch::full({2}, 0.5, torch::kBFloat16)));
  EXPECT_TRUE(torch::equal(tensors.at("long"), torch::tensor({-1L, 1L << 40})));
  EXPECT_TRUE(torch::equal(tensors.at("bool"), torch::tensor({true, false})));
  EXPECT_TRUE(torch::equal(tensors.at("double"), torch::full({1}, 0.1, torch::kFloat64)));
  EXPECT_EQ(tensors.at("scalar").dim(), 0);
  EXPECT_EQ(tensors.at("empty").sizes(), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(tensors.size(), 9U);
  // An OrderedDict with metadata, as model.state_dict() returns it; parameters; a checkpoint around it.
  for (const char* name : {"module.pth", "parameters.pth", "checkpoint.pth"}) {
    const auto read = read_weights(folder.file(name));
    ASSERT_TRUE(read.ok()) << name << " " << read.error().text();
    EXPECT_EQ(read.value().at("0.weight").sizes(), (std::vector<std::int64_t>{3, 2})) << name;
  }
  const auto legacy = read_weights(folder.file("legacy.pth"));
  ASSERT_FALSE(legacy.ok());
  EXPECT_NE(legacy.error().message.find("save it again"), std::string::npos) << legacy.error().message;
  const auto whole = read_weights(folder.file("whole_module.pth"));
  ASSERT_FALSE(whole.ok());
  EXPECT_NE(whole.error().message.find("which no state dict needs"), std::string::npos) << whole.error().message;
  const auto evil = read_weights(folder.file("evil.pth"));
  ASSERT_FALSE(evil.ok());
  EXPECT_NE(evil.error().message.find("\"system\""), std::string::npos) << evil.error().message;
  EXPECT_FALSE(std::filesystem::exists(folder.file("executed")));
}

TEST(StateDict, RefusesNamesThatOnlyCodeNeeds) {
  for (const std::string name : {"os\nsystem", "builtins\neval", "torch._utils\n_rebuild_tensor", "torch\nload",
                                 "collections\nOrderedDict.x", "torch._utils._rebuild_tensor_v2\n", "torch.jit\nload", "numpy\nndarray"}) {
    const std::string message =
        error_of(with_pickle("\x80\x02"
                             "c" +
                             name + "\n."));
    EXPECT_NE(message.find("which no state dict needs; it is not loaded"), std::string::npos) << name << ": " << message;
  }
}

TEST(StateDict, RefusesOpcodesThatOnlyCodeNeeds) {
  // INST, OBJ, NEWOBJ, STACK_GLOBAL, EXT1, PERSID, FRAME, BYTEARRAY8
  for (const char op : {'i', 'o', '\x81', '\x93', '\x82', 'P', '\x95', '\x96'}) {
    EXPECT_NE(error_of(with_pickle(std::string("\x80\x02") + op + ".")).find("is not used by state dicts"), std::string::npos) << int(op);
  }
}

TEST(StateDict, RefusesPicklesThatEndOrMisuseTheStack) {
  EXPECT_NE(error_of(with_pickle("")).find("ends without its stop"), std::string::npos);
  EXPECT_NE(error_of(with_pickle("\x80\x04.")).find("expected pickle protocol 2"), std::string::npos);
  EXPECT_NE(error_of(with_pickle("\x80\x02.")).find("one value"), std::string::npos);
  EXPECT_NE(error_of(with_pickle("\x80\x02}}.")).find("one value"), std::string::npos);
  EXPECT_NE(error_of(with_pickle("\x80\x02N.")).find("expected a state dict"), std::string::npos);
  for (const std::string body : {"t", "u", "s", "a", "R", "b", "Q", "q", "\x85", "}(s", "]K\x01s", "(t0(0",
                                 "}K\x01"
                                 "b0",
                                 "X\xff\xff\xff\xff", "}(K\x01u"}) {
    EXPECT_NE(error_of(with_pickle("\x80\x02" + body + ".")), "no error") << body;
  }
  EXPECT_NE(error_of(with_pickle("\x80\x02h\x07.")).find("did not store"), std::string::npos);
  EXPECT_NE(error_of(with_pickle("\x80\x02\x8a\x09"
                                 "aaaaaaaaa."))
                .find("64 bits"),
            std::string::npos);
}

TEST(StateDict, RefusesValuesOutsideTheirStorage) {
  const auto tensor = [](const FakeTensor& t) { return error_of(with_pickle(pickle_of({{"a", t}}))); };
  EXPECT_EQ(tensor({0, {4}, {1}}), "no error");
  EXPECT_NE(tensor({0, {5}, {1}}).find("\"a\": shape [5] does not fit the 4 values"), std::string::npos);
  EXPECT_NE(tensor({0, {0, 2147483647, 2147483647, 2147483647}, {1, 1, 1, 1}}).find("does not fit"), std::string::npos);
  EXPECT_NE(tensor({1, {4}, {1}}).find("does not fit"), std::string::npos);
  EXPECT_NE(tensor({0, {3}, {2}}).find("does not fit"), std::string::npos);
  EXPECT_NE(tensor({0, {1000000, 1000000}, {0, 0}}).find("does not fit"), std::string::npos) << "no memory for repeated values";
  EXPECT_NE(tensor({0, {2147483647, 2147483647, 2147483647}, {2147483647, 2147483647, 2147483647}}).find("does not fit"),
            std::string::npos);
  EXPECT_NE(tensor({-1, {1}, {1}}).find("offset from 0"), std::string::npos);
  EXPECT_NE(tensor({0, {-1}, {1}}).find("expected sizes"), std::string::npos);
  EXPECT_NE(tensor({0, {2}, {-1}}).find("expected sizes"), std::string::npos);
  EXPECT_NE(tensor({0, {2, 2}, {1}}).find("expected sizes"), std::string::npos);
  EXPECT_EQ(tensor({9, {0}, {1}}), "no error") << "nothing is read";
}

TEST(StateDict, RefusesStoragesThatDoNotFit) {
  const std::string pickle = pickle_of({{"a", {0, {1}, {1}}}});
  EXPECT_NE(error_of(zip_of({{"m/data.pkl", pickle}})).find("\"m/data/0\" is missing"), std::string::npos);
  EXPECT_NE(error_of(zip_of({{"m/data.pkl", pickle}, {"m/data/0", "abc"}})).find("ends within a value"), std::string::npos);
  const auto typed = [](std::string_view type) {
    return error_of(zip_of({{"m/data.pkl", pickle_of({{"a", {0, {1}, {1}}}}, type)}, {"m/data/0", "\x02"}}));
  };
  EXPECT_NE(typed("BoolStorage").find("only the bytes 0 and 1"), std::string::npos);
  EXPECT_NE(typed("QInt8Storage").find("type \"QInt8Storage\" are not known"), std::string::npos);
  EXPECT_NE(error_of(zip_of({{"m/data.pkl", pickle}, {"m/data/0", "abcd"}, {"m/byteorder", "big"}})).find("little-endian"),
            std::string::npos);
}

TEST(Zip, RefusesArchivesThatLie) {
  const std::string good = zip_of({{"m/data.pkl", "12345678"}, {"m/data/0", "abcdefgh"}});
  const auto central = good.find("PK\x01\x02");
  const auto end = good.find("PK\x05\x06");
  const auto changed = [&](std::size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    const auto archive = ZipArchive::parse(bytes_of(bytes));
    if (!archive) return archive.error().message;
    const auto read = archive.value().read("m/data.pkl");
    return read ? std::string("no error") : read.error().message;
  };
  EXPECT_EQ(changed(0, 'P'), "no error");
  EXPECT_NE(changed(40, '0').find("changed"), std::string::npos) << "checksum";
  EXPECT_NE(changed(central + 10, 8).find("neither compressed"), std::string::npos);
  EXPECT_NE(changed(central + 8, 1).find("nor encrypted"), std::string::npos);
  EXPECT_NE(changed(central + 20, 9).find("stored as it is"), std::string::npos);
  EXPECT_NE(changed(central + 45, 0x7f).find("outside the archive"), std::string::npos);
  EXPECT_NE(changed(end + 10, 3).find("cut off"), std::string::npos) << "more members than there are";
  EXPECT_NE(changed(end + 19, 0x7f).find("outside"), std::string::npos);
  EXPECT_NE(changed(end, 'p').find("its end is missing"), std::string::npos);
  EXPECT_FALSE(ZipArchive::parse({}));
  for (std::size_t length = 0; length < good.size(); ++length) EXPECT_FALSE(ZipArchive::parse(bytes_of(good).first(length))) << length;
}

TEST(Zip, RefusesMembersThatShareBytes) {
  std::string bytes = zip_of({{"a", "12345678"}, {"b", "12345678"}});
  const auto second = bytes.find("PK\x01\x02", bytes.find("PK\x01\x02") + 1);
  for (int i = 0; i < 4; ++i) bytes[second + 42 + static_cast<std::size_t>(i)] = 0;  // b lies where a lies
  const auto archive = ZipArchive::parse(bytes_of(bytes));
  ASSERT_FALSE(archive.ok());
  EXPECT_NE(archive.error().message.find("share bytes"), std::string::npos) << archive.error().message;
  EXPECT_NE(error_of(zip_of({{"a/data.pkl", ""}, {"b/data.pkl", ""}})).find("several"), std::string::npos);
  EXPECT_NE(error_of(zip_of({{"a/b", ""}})).find("expected a data.pkl"), std::string::npos);
}

}  // namespace
}  // namespace epipe::model
