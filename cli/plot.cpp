#include <algorithm>

#include "cli/command.h"
#include "core/io/file.h"
#include "run/curves.h"

namespace hone {
namespace {

class Plot : public Command {
 public:
  std::string summary() const override { return "curves of several runs' metrics, as an SVG file"; }
  std::string example() const override {
    return "hone plot --metric eval/gsm8k/accuracy --metric kl --out compare.svg grpo=runs/grpo_1,runs/grpo_2 "
           "ppo=runs/ppo_1,runs/ppo_2";
  }
  void arguments(Arguments& a) override {
    a.rest("curves", curves_,
           "NAME=RUN,RUN,...: the mean of these runs, and the band between the least and the largest");
    a.options("metric", metrics_, "a member of metrics.jsonl; each has a chart of its own, of the curves that have it");
    a.option("out", out_, "file", true);
    a.option("smooth", smooth_, "rows that each value is averaged over");
  }
  int run() override {
    require_usage(!metrics_.empty(), "plot: no --metric");
    require_usage(!curves_.empty(), "plot: no curves; NAME=RUN,RUN,... is wanted");
    require_usage(smooth_ >= 1, "plot: --smooth is ", smooth_, ", it must be 1 or more");
    std::vector<Chart> charts;
    for (const std::string& metric : metrics_) {
      Chart chart{.title = metric, .x_label = "step", .curves = {}};
      for (const std::string& curve : curves_) chart.curves.push_back(read(curve, metric));
      HONE_CHECK(std::ranges::any_of(chart.curves, [](const Curve& curve) { return !curve.points.empty(); }),
                 "plot: no row of these runs has '", metric, "'");
      charts.push_back(std::move(chart));
    }
    write_file_atomic(expand_path(out_), svg_charts(charts));
    return 0;
  }

 private:
  // Without points where none of its runs has the metric.
  Curve read(const std::string& spelled, const std::string& metric) const {
    const size_t equals = spelled.find('=');
    require_usage(equals != std::string::npos && equals > 0, "plot: '", spelled, "' is not NAME=RUN,RUN,...");
    std::vector<std::filesystem::path> runs;
    for (size_t begin = equals + 1; begin <= spelled.size();) {
      const size_t end = std::min(spelled.find(',', begin), spelled.size());
      require_usage(end > begin, "plot: '", spelled, "' names an empty run");
      runs.push_back(expand_path(spelled.substr(begin, end - begin)));
      begin = end + 1;
    }
    if (std::ranges::none_of(runs, [&](const auto& run) { return has_metric(run, metric); })) return {};
    return read_curve(spelled.substr(0, equals), runs, metric, smooth_);
  }

  std::vector<std::string> curves_, metrics_;
  std::string out_;
  int64_t smooth_ = 1;
};

[[maybe_unused]] const bool added = commands().add("plot", [] { return std::unique_ptr<Command>(new Plot); });

}  // namespace
}  // namespace hone
