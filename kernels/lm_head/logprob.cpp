// CPU specification of the lm_head ops, one row at a time.
#include "kernels/lm_head/logprob.h"

#include "kernels/cpu/exp.h"
#include "kernels/elementwise/softcap.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lm_head/internal.h"
#include "kernels/lm_head/logsumexp.h"

namespace hone {
namespace {

struct LogitRow {
  int64_t V = 0, target = 0;
  const float* logits = nullptr;
  float inv_temperature = 1, softcap = 0;
  float z(int64_t v) const { return logits[v] * inv_temperature; }
  // Derivative of the soft-cap at logit v.
  float slope(int64_t v) const {
    if (softcap <= 0) return 1;
    const float t = logits[v] / softcap;
    return 1 - t * t;
  }
};

template <class Visit>
void for_each_row(Context& context, Tensor hidden, Tensor w, Tensor targets, float inv_temperature, float softcap,
                  Visit visit) {
  const ScratchScope scope(context);
  const Tensor logits = context.scratch().take(DType::f32, {1, w.dim(0)});
  for (int64_t r = 0; r < hidden.dim(0); ++r) {
    gemm_forward(context, {.y = logits, .x = hidden.rows(r, 1), .w = w});
    if (softcap > 0) softcap_forward(context, logits, softcap);
    visit(r, LogitRow{w.dim(0), targets.ptr<int32_t>()[r], logits.ptr<float>(), inv_temperature, softcap});
  }
}

void add_row_gradient(const LogitRow& row, float dlogp, float dentropy, float z_loss, float lse, float entropy,
                      float* dhidden, const float* hidden, Tensor w, Tensor dw) {
  const float dlse = 2 * z_loss * std::fabs(dlogp) * lse;
  for (int64_t v = 0; v < row.V; ++v) {
    const float log_p = row.z(v) - lse, p = exp_f32(log_p);
    const float onehot = v == row.target ? 1.0f : 0.0f;
    const float entropy_part = p > 0 ? dentropy * p * (log_p + entropy) : 0;
    const float dlogit = (dlogp * (onehot - p) - entropy_part + dlse * p) * row.inv_temperature * row.slope(v);
    for (int64_t d = 0; d < w.dim(1); ++d) {
      dhidden[d] += dlogit * w.row<float>(v)[d];
      if (dw) dw.row<float>(v)[d] += dlogit * hidden[d];
    }
  }
}

void forward(Context& context, const LogprobForward& args) {
  check_logprob_forward(args);
  for_each_row(context, args.hidden, args.w, args.targets, args.inv_temperature, args.softcap,
               [&](int64_t r, const LogitRow& row) {
                 const LogSumExp sums = log_sum_exp(row.logits, row.V, args.inv_temperature);
                 args.lse.ptr<float>()[r] = sums.value();
                 args.logp.ptr<float>()[r] = row.z(row.target) - sums.value();
                 if (args.entropy) args.entropy.ptr<float>()[r] = sums.entropy();
                 if (args.hit) args.hit.ptr<float>()[r] = row.z(row.target) >= sums.max ? 1.0f : 0.0f;
               });
}

void backward(Context& context, const LogprobBackward& args) {
  check_logprob_backward(args);
  context.zero(args.dhidden);
  args.dw.add_nothing(context);
  for_each_row(context, args.hidden, args.w, args.targets, args.inv_temperature, args.softcap,
               [&](int64_t r, const LogitRow& row) {
                 const float dentropy = args.grad.entropy ? args.grad.entropy.ptr<float>()[r] : 0;
                 add_row_gradient(row, args.grad.logp.ptr<float>()[r], dentropy, args.grad.z_loss,
                                  args.lse.ptr<float>()[r], args.entropy ? args.entropy.ptr<float>()[r] : 0,
                                  args.dhidden.row<float>(r), args.hidden.row<float>(r), args.w, args.dw.sum);
               });
}

void fused(Context& context, const LogprobFused& args) {
  check_logprob_fused(args);
  const ScratchScope scope(context);
  const Tensor entropy = args.grad.entropy ? context.scratch().take(DType::f32, {args.hidden.dim(0)}) : Tensor();
  forward(context, forward_of(args, entropy));
  backward(context, backward_of(args, entropy));
}

[[maybe_unused]] const bool added = logprob_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    logprob_backward.add({"specification", DeviceKind::cpu, backward}) &&
                                    logprob_fused.add({"specification", DeviceKind::cpu, fused});

}  // namespace

LogprobForward forward_of(const LogprobFused& args, Tensor entropy) {
  return {.logp = args.logp,
          .lse = args.lse,
          .entropy = entropy,
          .hit = args.hit,
          .hidden = args.hidden,
          .w = args.w,
          .targets = args.targets,
          .inv_temperature = args.inv_temperature,
          .softcap = args.softcap};
}
LogprobBackward backward_of(const LogprobFused& args, Tensor entropy) {
  return {.dhidden = args.dhidden,
          .dw = args.dw,
          .grad = args.grad,
          .lse = args.lse,
          .entropy = entropy,
          .hidden = args.hidden,
          .w = args.w,
          .targets = args.targets,
          .inv_temperature = args.inv_temperature,
          .softcap = args.softcap};
}

}  // namespace hone
