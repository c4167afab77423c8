#include "model/initialization.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/parallel_for.h"
#include "core/base/rng.h"
#include "kernels/elementwise/cast.h"

namespace hone {
namespace {

constexpr int64_t most_staged_elements = int64_t{1}
                                         << 22;  // of a parameter on its way from the host, unless one row has more

// The j-th of four normal numbers (Box and Muller).
double normal_of(const Philox4& words, int64_t j, double std) {
  const double radius = std::sqrt(-2 * std::log(static_cast<double>(open_unit_float(words.word[j / 2 * 2]))));
  const double angle = 2 * std::numbers::pi * static_cast<double>(open_unit_float(words.word[j / 2 * 2 + 1]));
  return std * radius * (j % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// Normal random numbers for elements 0, 1, ... of the stream. One Philox call gives four (Box and Muller).
void fill_normal(std::span<float> out, uint64_t seed, uint64_t stream, double std) {
  constexpr int64_t draws = 4;
  const auto count = static_cast<int64_t>(out.size());
  parallel_for((count + draws - 1) / draws, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Philox4 words = philox(seed, stream, static_cast<uint64_t>(i));
      for (int64_t j = 0; j < draws && i * draws + j < count; ++j)
        out[static_cast<size_t>(i * draws + j)] = static_cast<float>(normal_of(words, j, std));
    }
  });
}

void fill_uniform(std::span<float> out, uint64_t seed, uint64_t stream, double bound) {
  for (size_t i = 0; i < out.size(); ++i) {
    const double unit = open_unit_float(philox(seed, stream, i / 4).word[i % 4]);
    out[i] = static_cast<float>(bound * (2 * unit - 1));
  }
}

// Draws each number outside of [-bound, bound] standard deviations again until it lies inside. The others stay.
void redraw_outside(std::span<float> out, uint64_t seed, uint64_t stream, double std, double bound) {
  constexpr uint64_t most_draws = 1 << 16;  // of an element
  const double largest = std * bound;
  for (size_t i = 0; i < out.size(); ++i)
    for (uint64_t draw = 0; std::fabs(static_cast<double>(out[i])) > largest && draw < most_draws; ++draw)
      out[i] = static_cast<float>(normal_of(philox(seed, stream, i * most_draws + draw), 0, std));
}

// bound: largest absolute value of normal numbers in standard deviations; 0: none.
void draw_param(Context& context, const Param& param, uint64_t seed, double bound) {
  std::vector<float> drawn;
  int64_t row = 0;
  for (const Param::Slice& slice : param.slices) {
    const Tensor rows = param.value.rows(row, slice.rows);
    const uint64_t stream = stream_of(("init/" + slice.name).c_str());
    drawn.assign(static_cast<size_t>(rows.size()), static_cast<float>(param.init_value));
    if (param.init_std > 0) fill_normal(drawn, seed, stream, param.init_std);
    if (param.init_std > 0 && bound > 0)
      redraw_outside(drawn, seed, stream_of(("init/" + slice.name + "/redraw").c_str()), param.init_std, bound);
    if (param.init_uniform > 0) fill_uniform(drawn, seed, stream, param.init_uniform);
    const int64_t width = rows.size() / std::max<int64_t>(1, rows.dim(0)),
                  step = std::max<int64_t>(1, most_staged_elements / std::max<int64_t>(1, width));
    for (int64_t first = 0; first < rows.dim(0); first += step) {
      const Tensor piece = rows.rows(first, std::min(step, rows.dim(0) - first));
      const ScratchScope scope(context);
      const Tensor staged = context.scratch().take(DType::f32, piece.dims());
      context.copy(staged, host_view(std::span(drawn).subspan(static_cast<size_t>(first * width),
                                                              static_cast<size_t>(piece.size()))));
      cast(context, piece, staged);
    }
    row += slice.rows;
  }
}

// The last matrix of a residual branch. GPT-2's (c_proj) are scaled by the family unless another std is chosen.
bool writes_to_residual(const Param& param, bool own_std) {
  const std::string& name = param.slices.front().name;
  return name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") ||
         (own_std && name.ends_with("c_proj.weight"));
}

// The standard deviation of a matrix as the files have it: [rows, inputs], or a stack of them.
double std_of(const Param& param, const InitConfig& config, int64_t num_layers) {
  double out = param.init_std;
  if (out <= 0 || param.lookup || param.shape.size() < 2) return out;
  const auto inputs = static_cast<double>(param.shape.back()),
             outputs = static_cast<double>(param.shape[param.shape.size() - 2]);
  if (config.std == "fan_in") out = 1 / std::sqrt(inputs);
  if (config.std == "fan_avg") out = std::sqrt(2 / (inputs + outputs));
  if (config.depth_scaled && writes_to_residual(param, config.std != "fixed"))
    out /= std::sqrt(2 * static_cast<double>(num_layers));
  return out;
}

}  // namespace

void InitConfig::fields(Fields& f) {
  f("distribution", distribution,
    "normal | truncated_normal: numbers outside of bound standard deviations are drawn again");
  f("bound", bound, "truncated_normal: largest absolute value in standard deviations");
  f("std", std,
    "standard deviation of matrices with I inputs and O outputs: fixed (initializer_range) | fan_in (1 / sqrt(I)) | "
    "fan_avg (sqrt(2 / (I + O))); embeddings keep initializer_range");
  f("depth_scaled", depth_scaled,
    "true: matrices that write to the residual stream (o_proj, down_proj) have std / sqrt(2 * num_hidden_layers); "
    "gpt2's always have it if std is fixed");
  f.require("distribution", distribution == "normal" || distribution == "truncated_normal",
            "distribution must be normal or truncated_normal");
  f.require("bound", bound >= 0.1 && bound <= 100, "bound must be in [0.1, 100]");
  f.require("std", std == "fixed" || std == "fan_in" || std == "fan_avg", "std must be fixed, fan_in or fan_avg");
}

void initialize(Context& context, Model& model, const InitConfig& config, uint64_t seed) {
  const double bound = config.distribution == "truncated_normal" ? config.bound : 0;
  for (const Param* param : model.params()) {
    int64_t row = 0;
    for (const Param::Slice& slice : param->slices) {
      Param one = *param;
      one.slices = {slice};
      one.shape.front() = slice.rows;
      one.value = param->value.rows(row, slice.rows);
      one.init_std = std_of(one, config, model.shape().num_layers);
      draw_param(context, one, seed, bound);
      row += slice.rows;
    }
  }
}

void initialize_param(Context& context, const Param& param, uint64_t seed) { draw_param(context, param, seed, 0); }

}  // namespace hone
