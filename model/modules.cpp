#include "model/modules.h"

#include "kernels/gemm/gemm.h"
#include "kernels/moe/expert_bias.h"
#include "kernels/norm/layernorm.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/quant/gemm_quantized.h"

namespace hone {
namespace {

Param vector_param(const std::string& name, int64_t size, double init_value) {
  return {.slices = {{name, size}}, .shape = {size}, .decay = false, .init_value = init_value};
}

}  // namespace

Linear::Linear(const FusedModules& rows, int64_t inputs, bool with_bias, double init_std) {
  int64_t outputs = 0;
  for (const auto& [module, count] : rows) {
    weight.slices.push_back({module + ".weight", count});
    if (with_bias) bias.slices.push_back({module + ".bias", count});
    outputs += count;
  }
  weight.shape = {outputs, inputs};
  weight.init_std = init_std;
  weight.product_grad = true;
  if (with_bias) bias.shape = {outputs};
  bias.decay = false;
}

std::optional<GemmWeights> Linear::gemm() const {
  if (lora || quantized) return {};
  return GemmWeights{weight.value, bias.value};
}

void Linear::forward(Context& context, Tensor y, Tensor x, Tensor residual) const {
  if (quantized)
    gemm_quantized(context, {.y = y, .x = x, .w = quantized, .bias = bias.value, .residual = residual});
  else
    gemm_forward(context, {.y = y, .x = x, .w = weight.value, .bias = bias.value, .residual = residual});
  if (lora) lora->forward(context, y, x);
}

void Linear::backward(Context& context, Tensor dx, Tensor dy, Tensor x) const {
  backward_weight(context, dy, x);
  backward_input(context, dx, dy);
}

void Linear::backward_input(Context& context, Tensor dx, Tensor dy) const {
  gemm_backward_input(context, dx, dy, weight.value);
  if (lora) lora->backward_input(context, dx, dy);
}

void Linear::backward_weight(Context& context, Tensor dy, Tensor x) const {
  if (weight.grad) gemm_backward_weight(context, weight.grad_target(), bias.grad, dy, x);
  if (lora) lora->backward_weight(context, dy, x);
}

// Rows of all experts as [experts, out, in].
static Tensor matrices_of(const Linear& linear, const Tensor& rows) {
  return rows.view({linear.num_experts, rows.dim(0) / linear.num_experts, rows.dim(1)});
}

// Biases, or their gradients, of the experts: [experts, out].
static Tensor biases_of(const Linear& linear, const Tensor& all) {
  return all ? all.view({linear.num_experts, all.dim(0) / linear.num_experts}) : Tensor();
}

Tensor Linear::expert_biases() const { return biases_of(*this, bias.value); }

ExpertMatrices Linear::expert_matrices() const {
  ExpertMatrices out{.bias = expert_biases()};
  if (quantized)
    out.quantized = {matrices_of(*this, quantized.values),
                     quantized.scales.view({num_experts, num_outputs() / num_experts}), quantized.format};
  else
    out.w = matrices_of(*this, weight.value);
  return out;
}

void Linear::forward_experts(Context& context, Tensor y, Tensor x, Tensor offsets) const {
  expert_matrices().multiply(context, y, x, offsets);
  if (lora) lora->forward_experts(context, y, x, offsets);
}

void Linear::backward_input_experts(Context& context, Tensor dx, Tensor dy, Tensor offsets) const {
  grouped_gemm_backward_input(context, {.dx = dx, .dy = dy, .w = matrices_of(*this, weight.value), .offsets = offsets});
  if (lora) lora->backward_input_experts(context, dx, dy, offsets);
}

void Linear::backward_weight_experts(Context& context, Tensor dy, Tensor x, Tensor offsets) const {
  if (const GradTarget dw = weight.grad_target())
    grouped_gemm_backward_weight(
        context, {.dw = {matrices_of(*this, dw.sum), dw.accumulate}, .dy = dy, .x = x, .offsets = offsets});
  if (lora) lora->backward_weight_experts(context, dy, x, offsets);
}

void Linear::backward_bias_experts(Context& context, Tensor dy, Tensor offsets, Tensor weights, Tensor order) const {
  if (!bias.grad) return;
  expert_bias_backward(
      context,
      {.dbias = biases_of(*this, bias.grad), .dy = dy, .offsets = offsets, .weights = weights, .order = order});
}

Norm Norm::rms(const std::string& module, int64_t width, double eps, double offset) {
  return {.weight = vector_param(module + ".weight", width, 1 - offset),
          .eps = static_cast<float>(eps),
          .offset = static_cast<float>(offset)};
}

Norm Norm::layer(const std::string& module, int64_t width, double eps) {
  return {.kind = Kind::layer,
          .weight = vector_param(module + ".weight", width, 1),
          .bias = vector_param(module + ".bias", width, 0),
          .eps = static_cast<float>(eps)};
}

std::optional<RmsNormWeights> Norm::fused() const {
  if (kind != Kind::rms || offset != 0) return {};
  return RmsNormWeights{weight.value, eps};
}

Norm::Stats Norm::save(Frame& frame, int64_t num_rows) const {
  const auto column = [&] { return frame.save_for_backward(DType::f32, {num_rows}); };
  Stats out;
  if (kind == Kind::layer) out.mean = column();
  out.rstd = column();
  return out;
}

Norm::Stats Norm::restore(Saved& saved) const {
  Stats out;
  if (kind == Kind::layer) out.mean = saved.next();
  out.rstd = saved.next();
  return out;
}

void Norm::forward(Context& context, Tensor y, Tensor x, const Stats& stats) const {
  if (kind == Kind::rms)
    rmsnorm_forward(context, y, stats.rstd, x, weight.value, eps, offset);
  else
    layernorm_forward(
        context,
        {.y = y, .mean = stats.mean, .rstd = stats.rstd, .x = x, .w = weight.value, .b = bias.value, .eps = eps});
}

void Norm::backward(Context& context, Tensor dx, Tensor dy, Tensor x, const Stats& stats, bool accumulate) const {
  if (kind == Kind::rms)
    rmsnorm_backward(context, {.dx = dx,
                               .dw = weight.grad,
                               .dy = dy,
                               .x = x,
                               .rstd = stats.rstd,
                               .w = weight.value,
                               .accumulate = accumulate,
                               .offset = offset});
  else
    layernorm_backward(context, {.dx = dx,
                                 .dw = weight.grad,
                                 .db = bias.grad,
                                 .dy = dy,
                                 .x = x,
                                 .mean = stats.mean,
                                 .rstd = stats.rstd,
                                 .w = weight.value,
                                 .accumulate = accumulate});
}

void Norm::add_to(ModuleList& list) {
  list.add(weight);
  list.add(bias);
}

void ModuleList::add(Param& param) {
  if (!param.shape.empty()) params.push_back(&param);
}

void ModuleList::add(Linear& linear) {
  add(linear.weight);
  add(linear.bias);
  linears.push_back(&linear);
}

}  // namespace hone
