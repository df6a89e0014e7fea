// TorchScript files by their hash: what is not installed is not there, whatever the name says.
#include "epipe/model/script_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "support/model_run.h"
#include "support/script_modules.h"
#include "support/temp_folder.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;

const data::DataSpec kVectors{data::DataSpec::Kind::kImages, {6}, 3};

class InstalledScripts : public ::testing::Test {
 protected:
  InstalledScripts() { script_module(kChain).save(path_); }

  std::string hash() const { return script_hash(path_).value(); }
  // As a session sees it that has the folder's files of now.
  Registry server() const {
    Registry models = builtin_models();
    models.replace(torchscript_entry(read_script_folder(folder_.path()).value()));
    return models;
  }
  static std::string refusal(const Registry& models, const std::string& name) {
    try {
      models.architecture(name, kVectors);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  }

  TempFolder folder_;
  std::string path_ = folder_.file("net.pt");
};

TEST_F(InstalledScripts, AreTheClientsFileUnderItsHash) {
  const Registry models = builtin_models();
  const std::string name = models.portable_name("torchscript:" + path_);
  EXPECT_EQ(name, "torchscript:sha256=" + hash());
  EXPECT_TRUE(models.is_portable(name));
  EXPECT_FALSE(models.is_portable("torchscript:" + path_));
  const auto there = tensors_of(server().build_model(name, kVectors));
  const auto here = tensors_of(models.build_model("torchscript:" + path_, kVectors));
  ASSERT_EQ(there.size(), here.size());
  EXPECT_EQ(there.size(), 6U);
  for (const auto& [key, tensor] : here) EXPECT_TRUE(torch::equal(tensor, there.at(key))) << key;
}

TEST_F(InstalledScripts, AreAllThereIs) {
  const std::string other(64, 'a');
  const std::string unknown = refusal(server(), "torchscript:sha256=" + other);
  EXPECT_NE(unknown.find(other), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("epipe serve --models DIR"), std::string::npos) << unknown;
  EXPECT_NE(refusal(builtin_models(), "torchscript:sha256=" + hash()).find("there is no TorchScript file"), std::string::npos);
}

TEST_F(InstalledScripts, AreFoundByNoPath) {
  for (const std::string& trick : {std::string("sha256=" + path_), std::string("sha256=../net.pt"), std::string("sha256="),
                                   std::string("sha256=" + std::string(63, 'a') + "/"), std::string("sha256=" + std::string(64, 'A')),
                                   "sha256=" + hash() + "/../net.pt", "sha256=" + hash() + '\0'}) {
    EXPECT_NE(refusal(server(), "torchscript:" + trick).find("64 hexadecimal digits"), std::string::npos) << trick;
  }
  for (const char* const path : {"torchscript:/etc/passwd", "torchscript:net.pt", "torchscript:SHA256=a", "torchscript: sha256="}) {
    EXPECT_FALSE(server().is_portable(path)) << "a session is never asked to open " << path;
  }
}

TEST_F(InstalledScripts, ThatChangedAfterTheStartAreRefused) {
  const std::string name = "torchscript:sha256=" + hash();
  const Registry models = server();
  EXPECT_EQ(refusal(models, name), "");
  std::ofstream(path_, std::ios::app | std::ios::binary) << "x";
  EXPECT_NE(refusal(models, name).find("changed or removed"), std::string::npos);
  ::unlink(path_.c_str());
  EXPECT_NE(refusal(models, name).find("changed or removed"), std::string::npos);
  EXPECT_EQ(refusal(models, name).find(folder_.path()), std::string::npos) << "a client is told no path";
}

TEST_F(InstalledScripts, ThatAreDamagedAreRefused) {
  ASSERT_EQ(::truncate(path_.c_str(), 100), 0);
  EXPECT_NE(refusal(server(), "torchscript:sha256=" + hash()).find("is not a TorchScript file"), std::string::npos);
  std::ofstream(path_) << "not TorchScript at all";
  EXPECT_NE(refusal(server(), "torchscript:sha256=" + hash()).find("is not a TorchScript file"), std::string::npos);
}

TEST_F(InstalledScripts, AreOnlyThoseOfTheFolderThatEndInPt) {
  std::ofstream(folder_.file("notes.txt")) << "not a model";
  EXPECT_EQ(read_script_folder(folder_.path()).value().size(), 1U);
  EXPECT_FALSE(read_script_folder(folder_.file("nowhere")));
}

TEST_F(InstalledScripts, AreReadOnlyUpToALimit) {
  const std::string huge = folder_.file("huge.pt");
  std::ofstream(huge) << "";
  ASSERT_EQ(::truncate(huge.c_str(), static_cast<off_t>(kMaxScriptBytes) + 1), 0);
  const auto files = read_script_folder(folder_.path());  // without reading it: that would take seconds, and memory
  ASSERT_FALSE(files);
  EXPECT_NE(files.error().message.find("huge.pt"), std::string::npos) << files.error().message;
}

}  // namespace
}  // namespace epipe::model
