#pragma once
#include <string>
#include <utility>
#include <vector>

namespace hone {

// Points (x, y) joined, in the colour of the curve's place; one without points only takes up its colour. A band from
// low to high, if not empty, lies behind them (as many as points). What is not finite is left out.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;
  std::vector<std::pair<double, double>> band;  // low, high
};
// Curves on axes with round tick labels.
struct Chart {
  std::string title, x_label;
  std::vector<Curve> curves;
};
// An SVG document with the charts below one another.
std::string svg_charts(const std::vector<Chart>& charts);
std::string svg_chart(const std::string& title, const std::string& x_label, const std::vector<Curve>& curves);

// Horizontal bars from zero, each with its value and, where low < high, the interval as a line. Values that are not
// finite are drawn as zero.
struct Bar {
  std::string name;
  double value = 0, low = 0, high = 0;
};
std::string svg_bars(const std::string& title, const std::vector<Bar>& bars);

}  // namespace hone
