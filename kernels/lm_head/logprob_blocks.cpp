// The lm_head ops on the CPU in blocks of rows: one GEMM for the logits of a block, two for its gradients, and SIMD
// passes over each row. A block holds at most 2^25 logits, so scratch memory does not grow with the batch.
#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/cpu/features.h"
#include "kernels/elementwise/softcap.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lm_head/internal.h"
#include "kernels/lm_head/logsumexp.h"
#include "kernels/lm_head/vocab_row.h"

namespace hone {
namespace {

// Results of forward per row. Backward reads lse and entropy.
struct Columns {
  Tensor logp, lse, entropy, hit;  // all but lse may be empty
};

struct Head {
  Tensor hidden, w, targets;
  float inv_temperature = 1, softcap = 0;
};

// Calls visit(first row, logits) for each block of rows.
template <class Visit>
void for_each_block(Context& context, const Head& head, Visit visit) {
  constexpr int64_t most_logits = int64_t{1} << 25, multiple = 8;
  const int64_t R = head.hidden.dim(0), V = head.w.dim(0);
  const int64_t most_rows = std::max(multiple, most_logits / std::max<int64_t>(V, 1) / multiple * multiple);
  for (int64_t first = 0; first < R; first += most_rows) {
    const ScratchScope scope(context);
    const Tensor logits = context.scratch().take(DType::f32, {std::min(most_rows, R - first), V});
    gemm_forward(context, {.y = logits, .x = head.hidden.rows(first, logits.dim(0)), .w = head.w});
    if (head.softcap > 0) softcap_forward(context, logits, head.softcap);
    visit(first, logits);
  }
}

// Calls visit(row) for the rows of a block in parallel.
template <class Visit>
void for_each_row(const Tensor& logits, Visit visit) {
  constexpr int64_t worth_sharing = 65536;
  parallel_for(logits.dim(0), std::max<int64_t>(1, worth_sharing / logits.dim(1)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) visit(r);
  });
}

void write_columns(const Head& head, int64_t first, const Tensor& logits, const Columns& out) {
  for_each_row(logits, [&](int64_t r) {
    const int64_t at = first + r;
    const LogSumExp sums = log_sum_exp(logits.row<float>(r), logits.dim(1), head.inv_temperature);
    const float lse = sums.value();
    out.lse.ptr<float>()[at] = lse;
    const float target_z = logits.row<float>(r)[head.targets.ptr<int32_t>()[at]] * head.inv_temperature;
    if (out.logp) out.logp.ptr<float>()[at] = target_z - lse;
    if (out.hit) out.hit.ptr<float>()[at] = target_z >= sums.max ? 1.0f : 0.0f;
    if (out.entropy) out.entropy.ptr<float>()[at] = sums.entropy();
  });
}

void add_gradients(Context& context, const Head& head, int64_t first, const Tensor& logits, const Columns& columns,
                   const LogprobGrad& grad, Tensor dhidden, const GradTarget& dw) {
  const ScratchScope scope(context);
  Tensor capped;  // the logits, which their gradient replaces
  if (head.softcap > 0) {
    capped = context.scratch().take(DType::f32, logits.dims());
    context.copy(capped, logits);
  }
  for_each_row(logits, [&](int64_t r) {
    const int64_t at = first + r;
    const float dlogp = grad.logp.ptr<float>()[at], lse = columns.lse.ptr<float>()[at];
    RowGradient row{.dlogp = dlogp,
                    .dlse = 2 * grad.z_loss * std::fabs(dlogp) * lse,
                    .lse = lse,
                    .inv_temperature = head.inv_temperature,
                    .target = head.targets.ptr<int32_t>()[at]};
    if (grad.entropy) {
      row.dentropy = grad.entropy.ptr<float>()[at];
      row.entropy = columns.entropy.ptr<float>()[at];
    }
    if (row.dlogp == 0 && row.dentropy == 0)
      std::fill_n(logits.row<float>(r), logits.dim(1), 0.0f);
    else
      head_row_gradient(logits.row<float>(r), logits.dim(1), row);
  });
  if (capped) softcap_backward(context, logits, capped, head.softcap);
  gemm_backward_input(context, dhidden.rows(first, logits.dim(0)), logits, head.w);
  if (dw) gemm_backward_weight(context, dw.of_block(first), {}, logits, head.hidden.rows(first, logits.dim(0)));
}

void forward(Context& context, const LogprobForward& args) {
  check_logprob_forward(args);
  const Head head{args.hidden, args.w, args.targets, args.inv_temperature, args.softcap};
  for_each_block(context, head, [&](int64_t first, const Tensor& logits) {
    write_columns(head, first, logits, {args.logp, args.lse, args.entropy, args.hit});
  });
}

void backward(Context& context, const LogprobBackward& args) {
  check_logprob_backward(args);
  if (args.hidden.dim(0) == 0) return args.dw.add_nothing(context);
  const Head head{args.hidden, args.w, args.targets, args.inv_temperature, args.softcap};
  for_each_block(context, head, [&](int64_t first, const Tensor& logits) {
    add_gradients(context, head, first, logits, {{}, args.lse, args.entropy, {}}, args.grad, args.dhidden, args.dw);
  });
}

void fused(Context& context, const LogprobFused& args) {
  check_logprob_fused(args);
  if (args.hidden.dim(0) == 0) return args.dw.add_nothing(context);
  const ScratchScope scope(context);
  const Head head{args.hidden, args.w, args.targets, args.inv_temperature, args.softcap};
  const Columns columns{args.logp, args.lse,
                        args.grad.entropy ? context.scratch().take(DType::f32, {args.hidden.dim(0)}) : Tensor(),
                        args.hit};
  for_each_block(context, head, [&](int64_t first, const Tensor& logits) {
    write_columns(head, first, logits, columns);
    add_gradients(context, head, first, logits, columns, args.grad, args.dhidden, args.dw);
  });
}

template <class... A>
bool supports(const A&...) {
  return has_fused_multiply_add();
}

[[maybe_unused]] const bool added = logprob_forward.add({"row_blocks", DeviceKind::cpu, forward, 10, supports}) &&
                                    logprob_backward.add({"row_blocks", DeviceKind::cpu, backward, 10, supports}) &&
                                    logprob_fused.add({"row_blocks", DeviceKind::cpu, fused, 10, supports});

}  // namespace
}  // namespace hone
