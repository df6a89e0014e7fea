// What charts are made of: text, thinned curves, axes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "epipe/report/axis.h"
#include "epipe/report/series.h"
#include "epipe/report/text.h"

namespace epipe::report {
namespace {

TEST(Text, IsEscapedForHtmlAndXml) {
  EXPECT_EQ(escape("<script>alert('1' & \"2\")</script>"), "&lt;script&gt;alert(&#39;1&#39; &amp; &quot;2&quot;)&lt;/script&gt;");
  EXPECT_EQ(escape("naïve ✓ 😀"), "naïve ✓ 😀");
  EXPECT_EQ(escape("a\tb\r\n"), "a\tb\n");
}

TEST(Text, BytesThatNoDocumentMayHoldAreReplaced) {
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(escape(std::string("a\0b", 3)), "a" + replacement + "b");
  EXPECT_EQ(escape("\x1b"), replacement);
  EXPECT_EQ(escape("caf\xE9"), "caf" + replacement);                           // Latin-1
  EXPECT_EQ(escape("\xC0\xBC"), replacement + replacement);                    // overlong <
  EXPECT_EQ(escape("\xED\xA0\x80"), replacement + replacement + replacement);  // half a surrogate pair
  EXPECT_EQ(escape("\xE2\x9C"), replacement + replacement);                    // cut off
  EXPECT_EQ(escape("\xEF\xBF\xBF"), replacement + replacement + replacement);  // U+FFFF
}

TEST(Text, IsShortenedByCharactersNotBytes) {
  EXPECT_EQ(shorten("kurz", 4), "kurz");
  EXPECT_EQ(shorten("äöüß", 4), "äöüß");
  EXPECT_EQ(shorten("äöüßx", 4), "äöü…");
}

TEST(Text, NumbersAreForPeople) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(0.44471), "0.4447");
  EXPECT_EQ(number_text(123456), "123456");
  EXPECT_EQ(number_text(4.5e-5), "4.50e-05");
  EXPECT_EQ(number_text(NAN), "-");
  EXPECT_EQ(bytes_text(123), "123 B");
  EXPECT_EQ(bytes_text(1234567), "1.23 MB");
  EXPECT_EQ(seconds_text(0.0123), "12.3 ms");
  EXPECT_EQ(seconds_text(3725), "1 h 02 min");
  EXPECT_EQ(seconds_text(125), "2 min 05 s");
  EXPECT_EQ(percent_text(0.947), "94.70 %");
}

Series noise(std::size_t n) {
  Series points;
  for (std::size_t i = 0; i < n; ++i) points.push_back({static_cast<double>(i), std::sin(static_cast<double>(i * i % 977))});
  return points;
}

TEST(Thinning, LeavesShortCurvesAlone) { EXPECT_EQ(thin(noise(10), 10).size(), 10U); }

TEST(Thinning, KeepsEndsExtremesAndOrder) {
  Series points = noise(100000);
  points[4711].y = 50;
  points[81234].y = -50;
  for (const std::size_t most : {4U, 5U, 24U, 700U}) {
    const Series thinned = thin(points, most);
    EXPECT_LE(thinned.size(), most);
    EXPECT_EQ(thinned.front().x, 0);
    EXPECT_EQ(thinned.back().x, 99999);
    const auto [low, high] = std::minmax_element(thinned.begin(), thinned.end(), [](const Point& a, const Point& b) { return a.y < b.y; });
    EXPECT_EQ(low->y, -50);
    EXPECT_EQ(high->y, 50);
    EXPECT_TRUE(std::is_sorted(thinned.begin(), thinned.end(), [](const Point& a, const Point& b) { return a.x < b.x; }));
  }
}

TEST(Smoothing, IsTheMeanOfTheNeighbours) {
  const Series points = {{0, 1}, {1, 2}, {2, 6}, {3, 4}};
  const Series means = smooth(points, 3, 10);
  ASSERT_EQ(means.size(), 4U);
  EXPECT_EQ(means[0].y, 1.5);
  EXPECT_EQ(means[1].y, 3);
  EXPECT_EQ(means[2].y, 4);
  EXPECT_EQ(means[3].y, 5);
  EXPECT_EQ(smooth(noise(1000), 11, 50).size(), 50U);
  EXPECT_TRUE(smooth({}, 3, 10).empty());
  EXPECT_EQ(smooth({{7, 1}}, 3, 10).size(), 1U);
}

TEST(Axis, IsWidenedToRoundNumbers) {
  const Axis axis = Axis::linear(0.13, 0.87, 0, 100, 5);
  ASSERT_EQ(axis.ticks().size(), 6U);
  EXPECT_EQ(axis.ticks().front().text, "0.0");
  EXPECT_EQ(axis.ticks().back().text, "1.0");
  EXPECT_DOUBLE_EQ(axis.at(0.5), 50);
}

TEST(Axis, HasTicksForEveryRange) {
  for (const double low : {0.0, -3.0, 1.0, 1e-30, 1e16, 1e29}) {
    for (const double range : {0.0, 1e-12, 1.0, 7.3, 1e5, 1e29}) {
      for (const Axis& axis : {Axis::linear(low, low + range, 0, 100, 5), Axis::tight(low, low + range, 0, 100, 5)}) {
        EXPECT_FALSE(axis.ticks().empty()) << low << " " << range;
        EXPECT_LE(axis.ticks().size(), 13U) << low << " " << range;
        EXPECT_TRUE(axis.at(low) >= -1e-3 && axis.at(low + range) <= 100.001) << low << " " << range;
      }
    }
  }
}

TEST(Axis, OfLogarithmsPutsZeroOnALineOfItsOwn) {
  const Axis axis = Axis::logarithmic(3e-5, 0.02, true, 200, 0);
  EXPECT_EQ(axis.at(0), 200);
  EXPECT_LT(axis.at(3e-5), 190);
  EXPECT_DOUBLE_EQ(axis.at(0.1), 0);
  EXPECT_EQ(axis.ticks().front().text, "0");
  EXPECT_LE(Axis::logarithmic(1e-300, 1e300, false, 0, 100).ticks().size(), 8U);
}

}  // namespace
}  // namespace epipe::report
