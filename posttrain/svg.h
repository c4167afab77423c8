#pragma once
#include <string>
#include <utility>
#include <vector>

namespace hone {

// Points (x, y) joined; a band from low to high, if not empty, lies behind them (as many as points). What is not finite is left out.
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

}  // namespace hone
