// CPU specification of attention_forward, attention_backward and attention_paged: one query at a time, with f64 dot
// products.
#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention/args.h"

namespace hone {
namespace {

double dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{a[i]} * b[i];
  return sum;
}

// The score of a scaled q . k, and its derivative.
struct Score {
  double value, slope;
};
Score score_of(double scaled, double softcap) {
  if (softcap <= 0) return {scaled, 1};
  const double t = std::tanh(scaled / softcap);
  return {softcap * t, 1 - t * t};
}

// Attends one query at `position` to keys [first_key, position] and the sink, -infinity if there is none. Writes out
// [d] and returns the log-sum-exp. weights and sums are scratch.
double attend(float* out, const float* q, const KeyRows& keys, int64_t position, int64_t dim,
              const AttentionShape& shape, double sink, double* weights, double* sums) {
  const int64_t first = first_key(position, shape.window);
  double top = sink, total = 0;
  for (int64_t j = first; j <= position; ++j)
    top = std::max(top, weights[j] = score_of(double{shape.scale} * dot(q, keys.k_row(j), dim), shape.softcap).value);
  std::fill_n(sums, dim, 0.0);
  for (int64_t j = first; j <= position; ++j) {
    const double weight = std::exp(weights[j] - top);
    const float* v = keys.v_row(j);
    total += weight;
    for (int64_t i = 0; i < dim; ++i) sums[i] += weight * v[i];
  }
  total += std::exp(sink - top);
  for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<float>(sums[i] / total);
  return top + std::log(total);
}

// Reads the keys of `all`, not those of `args`.
void attend_all(Context& context, const AttentionForward& args, const KeySource& all) {
  check_sinks(args);
  const Tensor &out = args.out, &lse = args.lse, &q = args.q, &offsets = args.offsets;
  const int64_t heads = q.dim(1), dim = q.dim(2), group = heads / all.num_kv_heads;
  const ScratchScope scope(context);
  double* weights = context.scratch().take(DType::f64, {all.max_length}).ptr<double>();
  double* sums = context.scratch().take(DType::f64, {dim}).ptr<double>();
  for (int64_t s = 0; s + 1 < offsets.dim(0); ++s)
    for (int64_t t = offsets.ptr<int32_t>()[s]; t < offsets.ptr<int32_t>()[s + 1]; ++t)
      for (int64_t h = 0; h < heads; ++h) {
        const double log_sum = attend(out.row<float>(t) + h * dim, q.row<float>(t) + h * dim, all.rows(s, h / group),
                                      all.position(s, t), dim, args.shape, sink_of(args.sinks, h), weights, sums);
        if (lse) lse.row<float>(t)[h] = static_cast<float>(log_sum);
      }
}

void forward(Context& context, const AttentionForward& args) {
  attend_all(context, args, packed_keys(attention_forward, args.out, args.lse, args.q, args.k, args.v, args.offsets));
}

void paged(Context& context, const AttentionPaged& args) {
  const ScratchScope scope(context);
  const PagedKv kv = in_f32(context, attention_paged, args.cache, args.offsets.dim(0) - 1);
  attend_all(context, queries_of(args), paged_keys(attention_paged, args.out, args.q, kv, args.offsets));
}

// With p_j = exp(s(scale * q . k_j) - lse), s the soft-cap or the identity, and delta = dout . out:
// dv_j += p_j * dout,  ds_j = p_j * (dout . v_j - delta) * s' * scale,  dq = sum of ds_j * k_j,  dk_j += ds_j * q.
// A sink is a key with the value 0: its gradient is -exp(sink - lse) * delta.
void backward(Context& context, const AttentionBackward& args) {
  const int64_t heads = args.q.dim(1), dim = args.q.dim(2), group = heads / std::max<int64_t>(args.k.dim(1), 1);
  packed_keys(attention_backward, args.out, args.lse, args.q, args.k, args.v, args.offsets);
  check_gradients(args);
  HONE_CHECK(args.lse, "attention_backward: lse is empty; pass the lse of attention_forward");
  context.zero(args.dq);
  context.zero(args.dk);
  context.zero(args.dv);
  const ScratchScope scope(context);
  const Tensor delta = context.scratch().take(DType::f32, {args.q.dim(0), heads});
  for (int64_t s = 0; s + 1 < args.offsets.dim(0); ++s) {
    const int64_t begin = args.offsets.ptr<int32_t>()[s], end = args.offsets.ptr<int32_t>()[s + 1];
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t t = begin; t < end; ++t) {
        const int64_t column = h * dim, kv_column = h / group * dim;
        const float *query = args.q.row<float>(t) + column, *grad = args.dout.row<float>(t) + column;
        float* query_grad = args.dq.row<float>(t) + column;
        const double of_out = dot(grad, args.out.row<float>(t) + column, dim), log_sum = args.lse.row<float>(t)[h];
        delta.row<float>(t)[h] = static_cast<float>(of_out);
        for (int64_t j = begin + first_key(t - begin, args.shape.window); j <= t; ++j) {
          const float *key = args.k.row<float>(j) + kv_column, *value = args.v.row<float>(j) + kv_column;
          float *key_grad = args.dk.row<float>(j) + kv_column, *value_grad = args.dv.row<float>(j) + kv_column;
          const Score score = score_of(double{args.shape.scale} * dot(query, key, dim), args.shape.softcap);
          const double weight = std::exp(score.value - log_sum);
          const double score_grad = weight * (dot(grad, value, dim) - of_out) * score.slope * args.shape.scale;
          for (int64_t i = 0; i < dim; ++i) {
            value_grad[i] += static_cast<float>(weight * grad[i]);
            query_grad[i] += static_cast<float>(score_grad * key[i]);
            key_grad[i] += static_cast<float>(score_grad * query[i]);
          }
        }
      }
  }
  add_sink_gradients(args, delta);
}

[[maybe_unused]] const bool added = attention_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    attention_backward.add({"specification", DeviceKind::cpu, backward}) &&
                                    attention_paged.add({"specification", DeviceKind::cpu, paged});

}  // namespace
}  // namespace hone
