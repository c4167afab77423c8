#include "core/io/svg.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hone {
namespace {

size_t count(const std::string& text, const std::string& word) {
  size_t out = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++out;
  return out;
}

TEST(Svg, ALineJoinsThePointsThatAreFinite) {
  const std::string chart =
      svg_chart("loss", "step", {{"loss", {{0, 3}, {1, NAN}, {2, 1}, {3, INFINITY}, {4, 2}}, {}}});
  EXPECT_TRUE(chart.starts_with("<svg") && chart.ends_with("</svg>\n"));
  const size_t begin = chart.find("points=\"") + 8;
  EXPECT_EQ(count(chart.substr(begin, chart.find('"', begin) - begin), ","), 3u);
  EXPECT_EQ(count(chart, "nan") + count(chart, "inf"), 0u);
}

TEST(Svg, NamesAreEscapedAndTellCurvesApart) {
  const std::string chart = svg_chart("a < b & c", "step", {{"one<", {{0, 0}}, {}}, {"two", {{0, 1}}, {}}});
  EXPECT_NE(chart.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_NE(chart.find("one&lt;"), std::string::npos);
  EXPECT_EQ(count(chart, "<polyline"), 2u);
}

TEST(Svg, NothingOnePointAndEqualPointsAreDrawnInBounds) {
  for (const std::vector<Curve>& curves : {std::vector<Curve>{},
                                           {{"x", {{5, 5}}, {}}},
                                           {{"x", {{1, 7}, {2, 7}}, {}}},
                                           {{"x", {{0, 1e-300}, {1, 2e-300}}, {}}},
                                           {{"x", {{0, -1e300}, {1, 1e300}}, {}}}}) {
    const std::string chart = svg_chart("t", "x", curves);
    EXPECT_LT(chart.size(), 20000u);
    EXPECT_EQ(count(chart, "nan"), 0u) << chart;
  }
}

TEST(Svg, ACurveWithoutPointsKeepsItsColor) {
  const Curve none{"absent", {}, {}}, one{"one", {{0, 1}, {1, 2}}, {}};
  const std::string second = svg_chart("t", "x", {none, one}), first = svg_chart("t", "x", {one, none});
  EXPECT_EQ(count(second, "absent") + count(first, "absent"), 0u);
  const auto color = [](const std::string& chart) {
    return chart.substr(chart.find("stroke=\"#", chart.find("<polyline")) + 8, 7);
  };
  EXPECT_NE(color(first), color(second));
}

TEST(Svg, ChartsLieBelowOneAnotherAndABandWidensTheAxis) {
  const Chart plain{"plain", "step", {{"x", {{0, 1}, {1, 2}}, {}}}},
      banded{"banded", "step", {{"x", {{0, 1}, {1, 2}}, {{0.5, 1.5}, {1, 8}}}}};
  const std::string alone = svg_charts({plain}), both = svg_charts({plain, banded});
  EXPECT_EQ(count(alone, "<polygon"), 0u);
  EXPECT_EQ(count(both, "<polygon"), 1u);
  EXPECT_NE(both.find(">8</text>"), std::string::npos);
  const auto height = [](const std::string& chart) { return std::stod(chart.substr(chart.find("height=\"") + 8)); };
  EXPECT_EQ(height(both), 2 * height(alone));
}

TEST(SvgBars, ABarAThingWithItsIntervalAndNothingThatIsNoNumber) {
  const std::string bars = svg_bars("a <title>", {{"x & y", 0.5, 0.4, 0.6}, {"none", NAN}, {"zero", 0}});
  EXPECT_NE(bars.find("a &lt;title>"), std::string::npos);
  EXPECT_NE(bars.find("x &amp; y"), std::string::npos);
  EXPECT_EQ(count(bars, "=\"nan"), 0u);
  EXPECT_EQ(count(bars, "<rect"), 4u);  // the background and three bars
  EXPECT_EQ(count(bars, "<line"), 1u);
}

}  // namespace
}  // namespace hone
