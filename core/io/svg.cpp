#include "core/io/svg.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/base/format.h"

namespace hone {
namespace {

constexpr double width = 640, left = 64, right = 16, bottom = 44, plot_height = 240, legend_line = 14;
constexpr const char* colors[] = {"#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed"};

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

// Height of the title above the plot.
double plot_top(const Chart& chart) {
  if (chart.curves.size() < 2) return 36;
  return 36 + legend_line * static_cast<double>(std::ranges::count_if(
                                chart.curves, [](const Curve& curve) { return !curve.points.empty(); }));
}
double height_of(const Chart& chart) { return plot_top(chart) + plot_height + bottom; }

bool finite(const std::pair<double, double>& p) { return std::isfinite(p.first) && std::isfinite(p.second); }

// The chart with its top at `offset`.
void draw(std::string& out, const Chart& chart, double offset) {
  Range xs, ys;
  for (const Curve& curve : chart.curves)
    for (size_t i = 0; i < curve.points.size(); ++i) {
      if (!finite(curve.points[i])) continue;
      xs.take(curve.points[i].first), ys.take(curve.points[i].second);
      if (!curve.band.empty() && finite(curve.band[i])) ys.take(curve.band[i].first), ys.take(curve.band[i].second);
    }
  if (xs.low > xs.high) xs = {0, 1}, ys = {0, 1};
  for (Range* range : {&xs, &ys})
    if (range->high - range->low < 1e-12) range->low -= 0.5, range->high += 0.5;
  const double top = offset + plot_top(chart), floor = offset + height_of(chart) - bottom;
  const auto px = [&](double x) { return left + (x - xs.low) / (xs.high - xs.low) * (width - left - right); };
  const auto py = [&](double y) { return floor - (y - ys.low) / (ys.high - ys.low) * (floor - top); };

  out +=
      format_text("<text x=\"%g\" y=\"%g\" font-size=\"14\">", left, offset + 20) + escaped(chart.title) + "</text>\n";
  out +=
      format_text("<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">", (left + width - right) / 2, floor + bottom - 8) +
      escaped(chart.x_label) + "</text>\n";
  for (double step = tick_step(xs), x = std::ceil(xs.low / step) * step; x <= xs.high + 1e-9 * step; x += step)
    out += format_text("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n", px(x), floor + 16,
                       std::abs(x) < step * 1e-6 ? 0 : x);
  for (double step = tick_step(ys), y = std::ceil(ys.low / step) * step; y <= ys.high + 1e-9 * step; y += step)
    out += format_text(
        "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e5e7eb\"/><text x=\"%g\" y=\"%.1f\" "
        "text-anchor=\"end\">%g</text>\n",
        left, width - right, py(y), py(y), left - 6, py(y) + 4, std::abs(y) < step * 1e-6 ? 0 : y);
  for (const auto& [x, label] : chart.marks) {
    if (x < xs.low || x > xs.high) continue;
    out += format_text(
               "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#6b7280\" "
               "stroke-dasharray=\"4 3\"/><text x=\"%.1f\" y=\"%.1f\" fill=\"#6b7280\">",
               px(x), px(x), top, floor, px(x) + 4, top + 8) +
           escaped(label) + "</text>\n";
  }
  const auto point = [&](double x, double y) {
    if (std::isfinite(x) && std::isfinite(y)) out += format_text("%.1f,%.1f ", px(x), py(y));
  };
  double legend = offset + 36;
  for (size_t c = 0; c < chart.curves.size(); ++c) {
    const Curve& curve = chart.curves[c];
    if (curve.points.empty()) continue;
    const char* color = colors[c % std::size(colors)];
    if (!curve.band.empty()) {
      out += format_text("<polygon fill=\"%s\" fill-opacity=\"0.15\" points=\"", color);
      for (size_t i = 0; i < curve.points.size(); ++i) point(curve.points[i].first, curve.band[i].first);
      for (size_t i = curve.points.size(); i-- > 0;) point(curve.points[i].first, curve.band[i].second);
      out += "\"/>\n";
    }
    out += format_text("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", color);
    for (const auto& [x, y] : curve.points) point(x, y);
    out += "\"/>\n";
    if (chart.curves.size() < 2) continue;
    out += format_text("<text x=\"%g\" y=\"%g\" fill=\"%s\">", left, legend, color) + escaped(curve.name) + "</text>\n";
    legend += legend_line;
  }
}

}  // namespace

std::string svg_charts(const std::vector<Chart>& charts) {
  double height = 0;
  for (const Chart& chart : charts) height += height_of(chart);
  std::string out = format_text(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n",
      width, height, width, height);
  out += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  double offset = 0;
  for (const Chart& chart : charts) {
    draw(out, chart, offset);
    offset += height_of(chart);
  }
  return out + "</svg>\n";
}

std::string svg_chart(const std::string& title, const std::string& x_label, const std::vector<Curve>& curves) {
  return svg_charts({{title, x_label, curves}});
}

std::string svg_bars(const std::string& title, const std::vector<Bar>& bars) {
  constexpr double names = 240, line = 18, top = 36, numbers = 60;
  const auto finite = [](double v) { return std::isfinite(v) ? std::max(v, 0.0) : 0; };
  double longest = 0;
  for (const Bar& bar : bars) longest = std::max({longest, finite(bar.value), finite(bar.high)});
  const double height = top + line * static_cast<double>(bars.size()) + 8,
               scale = (width - names - numbers) / (longest > 0 ? longest : 1);
  std::string out = format_text(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n",
      width, height, width, height);
  out += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"8\" y=\"20\" font-size=\"14\">" +
         escaped(title) + "</text>\n";
  for (size_t b = 0; b < bars.size(); ++b) {
    const Bar& bar = bars[b];
    const double y = top + line * static_cast<double>(b), middle = y + line / 2;
    out += format_text("<text x=\"%g\" y=\"%g\" text-anchor=\"end\">", names - 6, middle + 4) + escaped(bar.name) +
           "</text>\n";
    out += format_text("<rect x=\"%g\" y=\"%g\" width=\"%.1f\" height=\"%g\" fill=\"%s\"/>\n", names, y + 3,
                       finite(bar.value) * scale, line - 6, colors[0]);
    if (bar.low < bar.high)
      out += format_text("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\" stroke=\"black\"/>\n",
                         names + finite(bar.low) * scale, names + finite(bar.high) * scale, middle, middle);
    out += format_text("<text x=\"%.1f\" y=\"%g\">%.4g</text>\n",
                       names + std::max(finite(bar.value), finite(bar.high)) * scale + 4, middle + 4, bar.value);
  }
  return out + "</svg>\n";
}

}  // namespace hone
