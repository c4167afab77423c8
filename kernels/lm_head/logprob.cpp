// CPU specification of the lm_head ops, one row at a time.
#include "kernels/lm_head/logprob.h"

#include "kernels/cpu/exp.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lm_head/logprob_check.h"
#include "kernels/lm_head/logsumexp.h"

namespace hone {
namespace {

struct Row {
  int64_t V = 0, target = 0;
  const float* logits = nullptr;
  float inv_temperature = 1;
  float z(int64_t v) const { return logits[v] * inv_temperature; }
};

template <class Visit>
void for_each_row(Context& context, Tensor hidden, Tensor w, Tensor targets, float inv_temperature, Visit visit) {
  const ScratchScope scope(context);
  const Tensor logits = context.scratch().take(DType::f32, {1, w.dim(0)});
  for (int64_t r = 0; r < hidden.dim(0); ++r) {
    gemm_forward(context, logits, hidden.rows(r, 1), w, {}, {});
    visit(r, Row{w.dim(0), targets.ptr<int32_t>()[r], logits.ptr<float>(), inv_temperature});
  }
}

void add_row_gradient(const Row& row, float dlogp, float dentropy, float z_loss, float lse, float entropy,
                      float* dhidden, const float* hidden, Tensor w, Tensor dw) {
  const float dlse = 2 * z_loss * std::fabs(dlogp) * lse;
  for (int64_t v = 0; v < row.V; ++v) {
    const float log_p = row.z(v) - lse, p = exp_f32(log_p);
    const float onehot = v == row.target ? 1.0f : 0.0f;
    const float entropy_part = p > 0 ? dentropy * p * (log_p + entropy) : 0;
    const float dlogit = (dlogp * (onehot - p) - entropy_part + dlse * p) * row.inv_temperature;
    for (int64_t d = 0; d < w.dim(1); ++d) {
      dhidden[d] += dlogit * w.row<float>(v)[d];
      if (dw) dw.row<float>(v)[d] += dlogit * hidden[d];
    }
  }
}

void forward(Context& context, Tensor logp, Tensor lse, Tensor entropy, Tensor hidden, Tensor w, Tensor targets,
             float inv_temperature) {
  check_logprob_forward(logp, lse, entropy, hidden, w, targets, inv_temperature);
  for_each_row(context, hidden, w, targets, inv_temperature, [&](int64_t r, const Row& row) {
    const LogSumExp sums = log_sum_exp(row.logits, row.V, inv_temperature);
    lse.ptr<float>()[r] = sums.value();
    logp.ptr<float>()[r] = row.z(row.target) - sums.value();
    if (entropy) entropy.ptr<float>()[r] = sums.entropy();
  });
}

void backward(Context& context, Tensor dhidden, Tensor dw, LogprobGrad grad, Tensor lse, Tensor entropy, Tensor hidden,
              Tensor w, Tensor targets, float inv_temperature) {
  check_logprob_backward(dhidden, dw, grad, lse, entropy, hidden, w, targets, inv_temperature);
  context.zero(dhidden);
  for_each_row(context, hidden, w, targets, inv_temperature, [&](int64_t r, const Row& row) {
    const float dentropy = grad.entropy ? grad.entropy.ptr<float>()[r] : 0;
    add_row_gradient(row, grad.logp.ptr<float>()[r], dentropy, grad.z_loss, lse.ptr<float>()[r],
                     entropy ? entropy.ptr<float>()[r] : 0, dhidden.row<float>(r), hidden.row<float>(r), w, dw);
  });
}

void fused(Context& context, Tensor logp, Tensor lse, Tensor dhidden, Tensor dw, LogprobGrad grad, Tensor hidden,
           Tensor w, Tensor targets, float inv_temperature) {
  check_logprob_fused(logp, lse, dhidden, dw, grad, hidden, w, targets, inv_temperature);
  const ScratchScope scope(context);
  const Tensor entropy = grad.entropy ? context.scratch().take(DType::f32, {hidden.dim(0)}) : Tensor();
  forward(context, logp, lse, entropy, hidden, w, targets, inv_temperature);
  backward(context, dhidden, dw, grad, lse, entropy, hidden, w, targets, inv_temperature);
}

[[maybe_unused]] const bool added = logprob_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    logprob_backward.add({"specification", DeviceKind::cpu, backward}) &&
                                    logprob_fused.add({"specification", DeviceKind::cpu, fused});

}  // namespace
}  // namespace hone
