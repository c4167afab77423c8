#include "posttrain/svg.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/format.h"

namespace hone {
namespace {

constexpr double width = 640, left = 64, right = 16, bottom = 44, plot_height = 240, legend_line = 14;
constexpr const char* colours[] = {"#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed"};

struct Range {
  double low = INFINITY, high = -INFINITY;
  void take(double v) { low = std::min(low, v), high = std::max(high, v); }
};

std::string escaped(const std::string& words) {
  std::string out;
  for (const char c : words) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

// The step of 1, 2 or 5 times a power of ten that gives about five ticks.
double tick_step(const Range& range) {
  const double raw = (range.high - range.low) / 5, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0})
    if (raw <= m * power) return m * power;
  return 10 * power;
}

}  // namespace

std::string svg_chart(const std::string& title, const std::string& x_label, const std::vector<Curve>& curves) {
  Range xs, ys;
  for (const Curve& curve : curves)
    for (const auto& [x, y] : curve.points)
      if (std::isfinite(x) && std::isfinite(y)) xs.take(x), ys.take(y);
  if (xs.low > xs.high) xs = {0, 1}, ys = {0, 1};
  for (Range* range : {&xs, &ys})
    if (range->high - range->low < 1e-12) range->low -= 0.5, range->high += 0.5;
  const double top = 36 + legend_line * static_cast<double>(curves.size() > 1 ? curves.size() : 0), height = top + plot_height + bottom;
  const auto px = [&](double x) { return left + (x - xs.low) / (xs.high - xs.low) * (width - left - right); };
  const auto py = [&](double y) { return height - bottom - (y - ys.low) / (ys.high - ys.low) * (height - top - bottom); };

  std::string out = format_text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" font-family=\"sans-serif\" font-size=\"11\">\n",
                                width, height);
  out += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  out += format_text("<text x=\"%g\" y=\"20\" font-size=\"14\">", left) + escaped(title) + "</text>\n";
  out += format_text("<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">", (left + width - right) / 2, height - 8) + escaped(x_label) + "</text>\n";
  for (double step = tick_step(xs), x = std::ceil(xs.low / step) * step; x <= xs.high + 1e-9 * step; x += step)
    out +=
        format_text("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n", px(x), height - bottom + 16, std::abs(x) < step * 1e-6 ? 0 : x);
  for (double step = tick_step(ys), y = std::ceil(ys.low / step) * step; y <= ys.high + 1e-9 * step; y += step)
    out +=
        format_text("<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e5e7eb\"/><text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                    left, width - right, py(y), py(y), left - 6, py(y) + 4, std::abs(y) < step * 1e-6 ? 0 : y);
  for (size_t c = 0; c < curves.size(); ++c) {
    const char* colour = colours[c % std::size(colours)];
    out += format_text("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", colour);
    for (const auto& [x, y] : curves[c].points)
      if (std::isfinite(x) && std::isfinite(y)) out += format_text("%.1f,%.1f ", px(x), py(y));
    out += "\"/>\n";
    if (curves.size() > 1)
      out += format_text("<text x=\"%g\" y=\"%g\" fill=\"%s\">", left, 36 + legend_line * static_cast<double>(c), colour) + escaped(curves[c].name) +
             "</text>\n";
  }
  return out + "</svg>\n";
}

}  // namespace hone
