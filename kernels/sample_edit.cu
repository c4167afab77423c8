#include "kernels/check_shape.h"
#include "kernels/cuda.cuh"
#include "kernels/sample_edit.h"

namespace hone {
namespace {

__global__ void edit_kernel(float* logits, int64_t stride, int64_t S, int64_t V, const LogitEdit* edits, int64_t count) {
  const int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (e >= count) return;
  const LogitEdit edit = edits[e];
  if (edit.row < 0 || edit.row >= S || edit.id < 0 || edit.id >= V) return;
  float& logit = logits[edit.row * stride + edit.id];
  const float z = __fadd_rn(logit, edit.bias);
  logit = __fsub_rn(z > 0 ? __fdiv_rn(z, edit.repetition) : __fmul_rn(z, edit.repetition), edit.minus);
}

void run(Context& context, Tensor logits, Tensor edits) {
  constexpr auto size = static_cast<int64_t>(sizeof(LogitEdit));
  const int64_t S = logits.dim(0), V = logits.dim(1), E = edits.size() / size;
  check_shape(edit_logits, "logits", logits, {S, V});
  check_shape(edit_logits, "edits", edits, {E * size}, DType::u8);
  HONE_CHECK(reinterpret_cast<uintptr_t>(edits.data) % alignof(LogitEdit) == 0, "edit_logits: edits are not aligned to ", alignof(LogitEdit),
             " bytes");
  if (E == 0) return;
  constexpr int threads = 256;
  edit_kernel<<<static_cast<unsigned>((E + threads - 1) / threads), threads, 0, cuda_stream(context)>>>(
      numbers<float>(logits), logits.row_stride, S, V, static_cast<const LogitEdit*>(edits.data), E);
  check_launch(edit_logits);
}

[[maybe_unused]] const bool added = edit_logits.add({"thread_an_edit", DeviceKind::cuda, run});

}  // namespace
}  // namespace hone
