#pragma once
#include <string>
#include <utility>
#include <vector>

namespace hone {

// A line chart as an SVG document: points (x, y) joined, axes with round tick labels. Points that are not finite are left out.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;
};
std::string svg_chart(const std::string& title, const std::string& x_label, const std::vector<Curve>& curves);

}  // namespace hone
