#include "epipe/base/bounded_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace epipe {
namespace {

using nlohmann::json;

std::string error_of(const std::string& text, const JsonLimits& limits = {}) {
  const auto parsed = parse_bounded_json(text, limits);
  return parsed ? "" : parsed.error().message;
}

TEST(BoundedJson, GivesWhatTheLibraryGives) {
  for (const char* const text : {"null", "true", "-1", "18446744073709551615", "1.5e300", R"("a\u00e9\n")", "[]", "{}", "[1,[2,[]],{}]",
                                 R"({"a":{"b":[1,2,{"c":null}],"d":"e"},"f":false,"":0})", " { \"a\" : [ 1 , 2 ] } "}) {
    const auto parsed = parse_bounded_json(text);
    ASSERT_TRUE(parsed) << text << ": " << parsed.error().message;
    EXPECT_EQ(parsed.value(), json::parse(text)) << text;
  }
}

TEST(BoundedJson, RefusesWhatIsNoJson) {
  for (const std::string text :
       {"", "[", "{", "[1,]", "{\"a\":}", "{\"a\"}", "nul", "1 2", "[1]x", "{} {}", "\"\xff\"", "\"\\ud800\"", "\"\n\"", "1e999"}) {
    EXPECT_NE(error_of(text), "") << text;
  }
  EXPECT_EQ(error_of(std::string("{}\0{", 4)), "is not valid JSON in UTF-8 at byte 3") << "nothing hides behind a zero";
  EXPECT_EQ(error_of(R"({"a":1,"a":2})"), "has a key twice");
}

TEST(BoundedJson, CountsDepthValuesAndWhatIsAllocated) {
  const JsonLimits few{.depth = 2, .values = 4, .allocated = 3};
  EXPECT_EQ(error_of("[[1]]", few), "");
  EXPECT_NE(error_of("[[[]]]", few).find("deeper than 2"), std::string::npos);
  EXPECT_EQ(error_of("[1,2,3]", few), "");
  EXPECT_NE(error_of("[1,2,3,4]", few).find("more than 4 values"), std::string::npos);
  EXPECT_EQ(error_of(R"(["",""])", few), "");
  EXPECT_NE(error_of(R"(["","",""])", few).find("3 strings, lists, objects and keys"), std::string::npos);
  EXPECT_EQ(error_of(R"({"a":1,"b":2})", few), "");
  EXPECT_NE(error_of(R"({"a":1,"b":2,"c":3})", few).find("3 strings, lists, objects and keys"), std::string::npos);
  EXPECT_NE(error_of("[[],[],[]]", few), "");
}

TEST(BoundedJson, ErrorsDoNotQuoteTheText) { EXPECT_EQ(error_of("[\"\x1b[2J\"]").find('\x1b'), std::string::npos); }

}  // namespace
}  // namespace epipe
