#include "epipe/report/inspection.h"

#include <gtest/gtest.h>

#include "epipe/report/page.h"
#include "report/samples.h"
#include "support/temp_folder.h"

namespace epipe::report {
namespace {

using testing::TempFolder;
using testing::write_text;

constexpr const char* kCut =
    R"({"cut":1,"direction":"backward","layer":"features.1","shape":[2,3],"values":6,"zeros":1,"min":-1,"max":2,"mean":0.5,"std":1,"kurtosis":3,)"
    R"("histogram_low":-4,"histogram_width":1,"histogram":[0,0,1,2,3,0],"log2_low":-2,"log2_width":1,"log2_histogram":[0,1,2,2,0],)"
    R"("codecs":[{"codec":"sort:6+2","bits_per_value":8,"rel_error":0.001},{"codec":"fp16","failed":"too large"}]})";

std::string file_of(const std::string& cut) { return "{\"model\":\"cnn\",\"cuts\":[" + cut + "]}"; }

TEST(Inspection, IsReadAsItWasWritten) {
  const auto read = parse_inspection(file_of(kCut), "inspect.json");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read.value().size(), 1U);
  const InspectedCut& cut = read.value()[0];
  EXPECT_EQ(cut.cut, 1);
  EXPECT_EQ(cut.direction, Direction::kBackward);
  EXPECT_EQ(cut.layer, "features.1");
  EXPECT_EQ(cut.histogram.counts, (std::vector<double>{0, 0, 1, 2, 3, 0}));
  EXPECT_EQ(cut.log2_histogram.low, -2);
  ASSERT_EQ(cut.codecs.size(), 2U);
  EXPECT_EQ(cut.codecs[0].rel_error, 0.001);
}

TEST(Inspection, NamesWhatDoesNotFit) {
  const auto with = [](std::string from, const std::string& to) {
    std::string cut = kCut;
    cut.replace(cut.find(from), from.size(), to);
    return file_of(cut);
  };
  for (const std::string& text :
       {with("\"cut\":1", "\"cut\":-1"), with("\"cut\":1", "\"cut\":99999999"), with("backward", "sideways"),
        with("\"histogram\":[0,0,1,2,3,0]", "\"histogram\":[1,2]"), with("\"histogram_width\":1", "\"histogram_width\":0"),
        with("[0,1,2,2,0]", "[0,\"x\",2]"), with("\"values\":6", "\"values\":\"six\""), std::string("[]"), std::string("{\"cuts\":7}"),
        std::string("nonsense")}) {
    const auto read = parse_inspection(text, "inspect.json");
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().message.find("inspect.json: "), 0U) << read.error().message;
  }
}

TEST(Inspection, GivesASectionOfThePageWithOrWithoutATraining) {
  TempFolder folder;
  write_text(folder.file("inspect.json"), file_of(kCut));
  auto alone = read_run(folder.path());
  ASSERT_TRUE(alone) << alone.error().message;
  const std::string page_alone = page({alone.value()});
  EXPECT_NE(page_alone.find("id=\"inspection-codecs-0\""), std::string::npos);
  EXPECT_NE(page_alone.find("0.001 at 8 bits"), std::string::npos);
  EXPECT_NE(page_alone.find("<td>failed</td>"), std::string::npos);
  write_text(folder.file("metrics.jsonl"), testing::step_line(0, 0) + testing::epoch_line(0));
  const std::string both = page({read_run(folder.path()).value(), alone.value()});
  EXPECT_NE(both.find("id=\"chart-values-1\""), std::string::npos);
}

}  // namespace
}  // namespace epipe::report
