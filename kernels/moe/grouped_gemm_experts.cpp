// The grouped GEMMs on the CPU: one dense product for each expert that has rows. Forward has the specification's bits
// because each body of gemm_forward has.
#include "kernels/gemm/gemm.h"
#include "kernels/moe/grouped_gemm.h"

namespace hone {
namespace {

// Calls visit(e, first row, rows) for each expert, or for those that have rows.
template <class Visit>
void each_expert(const Tensor& offsets, Visit visit) {
  const int32_t* at = offsets.ptr<int32_t>();
  for (int64_t e = 0; e + 1 < offsets.dim(0); ++e) visit(e, at[e], at[e + 1] - at[e]);
}
template <class Visit>
void each_used_expert(const Tensor& offsets, Visit visit) {
  each_expert(offsets, [&](int64_t e, int64_t first, int64_t rows) {
    if (rows > 0) visit(e, first, rows);
  });
}
void zero_tail(Context& context, const Tensor& x, const Tensor& offsets) {
  const int64_t end = offsets.ptr<int32_t>()[offsets.dim(0) - 1];
  for (int64_t r = end; r < x.dim(0); ++r) context.zero(x.rows(r, 1));
}

void forward(Context& context, const GroupedGemmForward& args) {
  check_grouped_gemm(args);
  check_grouped_rows(grouped_gemm_forward, args.offsets, args.y.dim(0));
  if (!args.accumulate) zero_tail(context, args.y, args.offsets);
  each_used_expert(args.offsets, [&](int64_t e, int64_t first, int64_t rows) {
    const Tensor y = args.y.rows(first, rows);
    gemm_forward(context, {.y = y,
                           .x = args.x.rows(first, rows),
                           .w = expert_matrix(args.w, e),
                           .residual = args.accumulate ? y : Tensor()});
  });
}

void backward_input(Context& context, const GroupedGemmBackwardInput& args) {
  check_grouped_gemm(args);
  check_grouped_rows(grouped_gemm_backward_input, args.offsets, args.dy.dim(0));
  zero_tail(context, args.dx, args.offsets);
  each_used_expert(args.offsets, [&](int64_t e, int64_t first, int64_t rows) {
    gemm_backward_input(context, args.dx.rows(first, rows), args.dy.rows(first, rows), expert_matrix(args.w, e));
  });
}

void backward_weight(Context& context, const GroupedGemmBackwardWeight& args) {
  check_grouped_gemm(args);
  check_grouped_rows(grouped_gemm_backward_weight, args.offsets, args.dy.dim(0));
  each_expert(args.offsets, [&](int64_t e, int64_t first, int64_t rows) {
    gemm_backward_weight(context, {expert_matrix(args.dw.sum, e), args.dw.accumulate}, {}, args.dy.rows(first, rows),
                         args.x.rows(first, rows));
  });
}

[[maybe_unused]] const bool added = grouped_gemm_forward.add({"experts", DeviceKind::cpu, forward, 10}) &&
                                    grouped_gemm_backward_input.add({"experts", DeviceKind::cpu, backward_input, 10}) &&
                                    grouped_gemm_backward_weight.add({"experts", DeviceKind::cpu, backward_weight, 10});

}  // namespace
}  // namespace hone
