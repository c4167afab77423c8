#pragma once
// Charts as SVG, for reports and `hone plot`.
#include <string>
#include <utility>
#include <vector>

namespace hone {

// A polyline through (x, y). The color depends on the curve's place in the list, so a curve without points reserves its
// color. The band (empty, or one entry per point) is drawn behind the line. Non-finite values are left out.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;
  std::vector<std::pair<double, double>> band;  // low, high
};
// Curves on axes with round tick labels. marks: vertical lines at x with a label, such as the first step of a stage.
struct Chart {
  std::string title, x_label;
  std::vector<Curve> curves;
  std::vector<std::pair<double, std::string>> marks = {};
};
// An SVG document with the charts below one another.
std::string svg_charts(const std::vector<Chart>& charts);
std::string svg_chart(const std::string& title, const std::string& x_label, const std::vector<Curve>& curves);

// A horizontal bar from zero with its value, and the interval as a line if low < high. Non-finite values count as zero.
struct Bar {
  std::string name;
  double value = 0, low = 0, high = 0;
};
std::string svg_bars(const std::string& title, const std::vector<Bar>& bars);

}  // namespace hone
