// Adapters of the experts of a mixture. Slices are in the order of the experts; each expert has the same parts (gate
// and up, or down), so A and B are tensors of equal matrices and the grouped products serve them.
#include "core/base/rng.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/dropout.h"
#include "kernels/moe/grouped_gemm.h"
#include "model/lora.h"

namespace hone {

Tensor LoraLayer::experts_a(Tensor a_like, Tensor offsets) const {
  return a_like.view({offsets.dim(0) - 1, num_parts(offsets) * shared_->config.r, a_like.dim(1)});
}

Tensor LoraLayer::experts_b(Tensor b_like, Tensor offsets, int64_t part) const {
  const int64_t E = offsets.dim(0) - 1, r = shared_->config.r;
  const Tensor first = rows_of(b_like, part);  // of expert 0
  Tensor out(first.data, b_like.dtype, b_like.device, {E, first.dim(0), r});
  out.row_stride = b_like.dim(0) / E * r;
  return out;
}

Tensor LoraLayer::part_of(Tensor y, int64_t part) const {
  const Slice& slice = slices_[static_cast<size_t>(part)];  // of expert 0, whose rows are the columns of y
  return y.columns(slice.first_row, slice.rows);
}

void LoraLayer::drop_experts(Context& context, Tensor to, Tensor from) const {
  const double rate = shared_->config.lora_dropout;
  const DropoutStream& draws = *shared_->draws;
  const std::string stream = concat("lora_dropout/", draws.step, "/", slices_[0].module, "/", draws.first_token);
  dropout(context, to, from, static_cast<float>(1 / (1 - rate)),
          {.rate = static_cast<float>(rate), .seed = shared_->seed, .stream = stream_of(stream.c_str())});
}

// x, or x with dropout in scratch.
Tensor LoraLayer::input_of_experts(Context& context, Tensor x) const {
  const Tensor memory = input_memory(context, x);
  if (!memory) return x;
  drop_experts(context, memory, x);
  return memory;
}

Tensor LoraLayer::inner_experts(Context& context, Tensor x, Tensor offsets) const {
  const Tensor out = context.scratch().take(x.dtype, {x.dim(0), num_parts(offsets) * shared_->config.r});
  const ScratchScope scope(context);
  grouped_gemm_forward(
      context, {.y = out, .x = input_of_experts(context, x), .w = experts_a(a.value, offsets), .offsets = offsets});
  add_scale(context, out);
  return out;
}

Tensor LoraLayer::inner_gradient_experts(Context& context, Tensor dy, Tensor offsets) const {
  const int64_t r = shared_->config.r;
  const Tensor out = context.scratch().take(dy.dtype, {dy.dim(0), num_parts(offsets) * r});
  for (int64_t i = 0; i < num_parts(offsets); ++i)
    grouped_gemm_backward_input(
        context,
        {.dx = out.columns(i * r, r), .dy = part_of(dy, i), .w = experts_b(b.value, offsets, i), .offsets = offsets});
  add_scale(context, out);
  return out;
}

void LoraLayer::forward_experts(Context& context, Tensor y, Tensor x, Tensor offsets) const {
  if (!shared_->enabled) return;
  const ScratchScope scope(context);
  const int64_t r = shared_->config.r;
  const Tensor hidden = inner_experts(context, x, offsets);
  for (int64_t i = 0; i < num_parts(offsets); ++i)
    grouped_gemm_forward(context, {.y = part_of(y, i),
                                   .x = hidden.columns(i * r, r),
                                   .w = experts_b(b.value, offsets, i),
                                   .offsets = offsets,
                                   .accumulate = true});
}

void LoraLayer::backward_input_experts(Context& context, Tensor dx, Tensor dy, Tensor offsets) const {
  if (!shared_->enabled) return;
  const ScratchScope scope(context);
  const Tensor dhidden = inner_gradient_experts(context, dy, offsets),
               part = context.scratch().take(dx.dtype, dx.dims());
  grouped_gemm_backward_input(context,
                              {.dx = part, .dy = dhidden, .w = experts_a(a.value, offsets), .offsets = offsets});
  if (shared_->drops()) drop_experts(context, part, part);
  add_into(context, dx, part);
}

void LoraLayer::backward_weight_experts(Context& context, Tensor dy, Tensor x, Tensor offsets) const {
  if (!shared_->enabled) return;
  const ScratchScope scope(context);
  const int64_t r = shared_->config.r;
  const Tensor hidden = inner_experts(context, x, offsets), dhidden = inner_gradient_experts(context, dy, offsets);
  for (int64_t i = 0; i < num_parts(offsets); ++i)
    grouped_gemm_backward_weight(
        context,
        {.dw = experts_b(b.grad, offsets, i), .dy = part_of(dy, i), .x = hidden.columns(i * r, r), .offsets = offsets});
  grouped_gemm_backward_weight(
      context,
      {.dw = experts_a(a.grad, offsets), .dy = dhidden, .x = input_of_experts(context, x), .offsets = offsets});
}

}  // namespace hone
