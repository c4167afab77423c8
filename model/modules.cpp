#include "model/modules.h"

#include "kernels/elementwise/activation.h"
#include "kernels/gemm/gemm.h"
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
  if (with_bias) bias.shape = {outputs};
  bias.decay = false;
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
  if (weight.grad) gemm_backward_weight(context, weight.grad, bias.grad, dy, x);
  if (lora) lora->backward_weight(context, dy, x);
}

void Linear::add_params(std::vector<Param*>& out) {
  out.push_back(&weight);
  if (!bias.shape.empty()) out.push_back(&bias);
}

RmsNorm::RmsNorm(const std::string& module, int64_t width, double norm_eps)
    : weight(vector_param(module + ".weight", width, 1)), eps(static_cast<float>(norm_eps)) {}

RmsNorm::Saved RmsNorm::save(Tape* tape, int64_t num_rows) const {
  if (!tape) return {};
  return {tape->push(DType::f32, {num_rows})};
}

RmsNorm::Saved RmsNorm::restore(Tape& tape) const { return {tape.pop()}; }

void RmsNorm::forward(Context& context, Tensor y, Tensor x, const Saved& kept) const {
  rmsnorm_forward(context, y, kept.rstd, x, weight.value, eps);
}

void RmsNorm::backward(Context& context, Tensor dx, Tensor dy, Tensor x, const Saved& kept, bool accumulate) const {
  rmsnorm_backward(
      context,
      {.dx = dx, .dw = weight.grad, .dy = dy, .x = x, .rstd = kept.rstd, .w = weight.value, .accumulate = accumulate});
}

void RmsNorm::add_params(std::vector<Param*>& out) { out.push_back(&weight); }

LayerNorm::LayerNorm(const std::string& module, int64_t width, double norm_eps)
    : weight(vector_param(module + ".weight", width, 1)),
      bias(vector_param(module + ".bias", width, 0)),
      eps(static_cast<float>(norm_eps)) {}

LayerNorm::Saved LayerNorm::save(Tape* tape, int64_t num_rows) const {
  if (!tape) return {};
  return {tape->push(DType::f32, {num_rows}), tape->push(DType::f32, {num_rows})};
}

LayerNorm::Saved LayerNorm::restore(Tape& tape) const {
  Saved kept;
  kept.rstd = tape.pop();
  kept.mean = tape.pop();
  return kept;
}

void LayerNorm::forward(Context& context, Tensor y, Tensor x, const Saved& kept) const {
  layernorm_forward(
      context, {.y = y, .mean = kept.mean, .rstd = kept.rstd, .x = x, .w = weight.value, .b = bias.value, .eps = eps});
}

void LayerNorm::backward(Context& context, Tensor dx, Tensor dy, Tensor x, const Saved& kept, bool accumulate) const {
  layernorm_backward(context, {.dx = dx,
                               .dw = weight.grad,
                               .db = bias.grad,
                               .dy = dy,
                               .x = x,
                               .mean = kept.mean,
                               .rstd = kept.rstd,
                               .w = weight.value,
                               .accumulate = accumulate});
}

void LayerNorm::add_params(std::vector<Param*>& out) {
  out.push_back(&weight);
  out.push_back(&bias);
}

GatedMlp::Saved GatedMlp::save(Context& context, Tape* tape, int64_t num_tokens) const {
  const DType dtype = gate_up.weight.value.dtype;
  return {hone::save(context, tape, dtype, {num_tokens, gate_up.num_outputs()}),
          save_if_all(context, tape, dtype, {num_tokens, gate_up.num_outputs() / 2})};
}

GatedMlp::Saved GatedMlp::restore(Tape& tape) const {
  Saved kept;
  kept.activated = restore_if_all(tape);
  kept.gate_up = tape.pop();
  return kept;
}

void GatedMlp::forward(Context& context, Tensor out, Tensor x, Tensor residual, const Saved& kept) const {
  gate_up.forward(context, kept.gate_up, x);
  swiglu_forward(context, kept.activated, kept.gate_up);
  down.forward(context, out, kept.activated, residual);
}

void GatedMlp::backward(Context& context, Tensor dx, Tensor dout, Tensor x, Saved kept) const {
  ScratchScope scope(context);
  const Tensor dgate_up = kept.gate_up;
  if (kept.activated) {
    const Tensor dactivated = kept.activated;
    down.backward(context, dactivated, dout, kept.activated);
    swiglu_backward(context, dgate_up, {}, dactivated, kept.gate_up);
  } else {
    const Tensor dactivated = context.scratch().take(kept.gate_up.dtype, {x.dim(0), down.weight.shape[1]}),
                 activated = dactivated;
    down.backward_input(context, dactivated, dout);
    swiglu_backward(context, dgate_up, activated, dactivated, kept.gate_up);
    down.backward_weight(context, dout, activated);
  }
  gate_up.backward(context, dx, dgate_up, x);
}

void GatedMlp::add_params(std::vector<Param*>& out) {
  gate_up.add_params(out);
  down.add_params(out);
}

void GatedMlp::add_linears(std::vector<Linear*>& out) { out.insert(out.end(), {&gate_up, &down}); }

GeluMlp::Saved GeluMlp::save(Context& context, Tape* tape, int64_t num_tokens) const {
  const DType dtype = up.weight.value.dtype;
  return {hone::save(context, tape, dtype, {num_tokens, up.num_outputs()}),
          save_if_all(context, tape, dtype, {num_tokens, up.num_outputs()})};
}

GeluMlp::Saved GeluMlp::restore(Tape& tape) const {
  Saved kept;
  kept.activated = restore_if_all(tape);
  kept.up = tape.pop();
  return kept;
}

void GeluMlp::forward(Context& context, Tensor out, Tensor x, Tensor residual, const Saved& kept) const {
  up.forward(context, kept.up, x);
  gelu_forward(context, kept.activated, kept.up);
  down.forward(context, out, kept.activated, residual);
}

void GeluMlp::backward(Context& context, Tensor dx, Tensor dout, Tensor x, Saved kept) const {
  ScratchScope scope(context);
  if (!kept.activated) {
    kept.activated = context.scratch().take(kept.up.dtype, kept.up.dims());
    gelu_forward(context, kept.activated, kept.up);
  }
  const Tensor dactivated = kept.activated;
  const Tensor dup = kept.up;
  down.backward(context, dactivated, dout, kept.activated);
  gelu_backward(context, dup, dactivated, kept.up);
  up.backward(context, dx, dup, x);
}

void GeluMlp::add_params(std::vector<Param*>& out) {
  up.add_params(out);
  down.add_params(out);
}

void GeluMlp::add_linears(std::vector<Linear*>& out) { out.insert(out.end(), {&up, &down}); }

}  // namespace hone
