#pragma once
// Attention in plain bf16 arithmetic: attention weights and their gradients are rounded to bf16 before their products,
// results at the end; all else is exact. A bf16 body may have twice its error.
#include "kernels/attention/attention.h"
#include "tests/gpu/gpu_check.h"

namespace hone::test {

namespace plain {

inline double bf16_of(double x) { return to_float(to_bf16(static_cast<float>(x))); }

inline double dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Calls visit(row, keys) for each query head: its row of d numbers, and the rows of the keys that it sees.
template <class Visit>
void each_query(const Floats& q, const Floats& k, const Ids& offsets, const AttentionShape& shape, Visit visit) {
  const int64_t heads = q.tensor().dim(1), kv_heads = k.tensor().dim(1), group = heads / kv_heads;
  std::vector<int64_t> keys;
  for (int64_t s = 0; s + 1 < offsets.size(); ++s)
    for (int64_t t = offsets[s]; t < offsets[s + 1]; ++t)
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t first = shape.window > 0 ? std::max<int64_t>(offsets[s], t - shape.window + 1) : offsets[s];
        keys.clear();
        for (int64_t j = first; j <= t; ++j) keys.push_back(j * kv_heads + h / group);
        visit(t * heads + h, keys);
      }
}

}  // namespace plain

inline Floats plain_attention(const Floats& q, const Floats& k, const Floats& v, const Ids& offsets,
                              const AttentionShape& shape) {
  const int64_t dim = q.tensor().dim(2);
  Floats out({q.tensor().dim(0), q.tensor().dim(1), dim});
  std::vector<double> scores, sums(static_cast<size_t>(dim));
  plain::each_query(q, k, offsets, shape, [&](int64_t row, const std::vector<int64_t>& keys) {
    scores.clear();
    for (const int64_t j : keys) scores.push_back(shape.scale * plain::dot(&q[row * dim], &k[j * dim], dim));
    const double top = *std::ranges::max_element(scores);
    double total = 0;
    std::ranges::fill(sums, 0.0);
    for (size_t i = 0; i < keys.size(); ++i) {
      const float* value = &v[keys[i] * dim];
      const double weight = std::exp(scores[i] - top), stored = plain::bf16_of(weight);
      total += weight;
      for (int64_t d = 0; d < dim; ++d) sums[static_cast<size_t>(d)] += stored * value[d];
    }
    for (int64_t d = 0; d < dim; ++d)
      out[row * dim + d] = static_cast<float>(plain::bf16_of(sums[static_cast<size_t>(d)] / total));
  });
  return out;
}

struct AttentionGradients {
  Floats dq, dk, dv;
};

inline AttentionGradients plain_attention_backward(const Floats& dout, const Floats& out, const Floats& lse,
                                                   const Floats& q, const Floats& k, const Floats& v,
                                                   const Ids& offsets, const AttentionShape& shape) {
  const int64_t dim = q.tensor().dim(2);
  std::vector<double> dq(static_cast<size_t>(q.size())), dk(static_cast<size_t>(k.size())),
      dv(static_cast<size_t>(v.size()));
  plain::each_query(q, k, offsets, shape, [&](int64_t row, const std::vector<int64_t>& keys) {
    const float *query = &q[row * dim], *grad = &dout[row * dim];
    const double delta = plain::dot(grad, &out[row * dim], dim), log_sum = lse[row];
    for (const int64_t j : keys) {
      const float *key = &k[j * dim], *value = &v[j * dim];
      const double weight = std::exp(shape.scale * plain::dot(query, key, dim) - log_sum);
      const double score_grad = plain::bf16_of(weight * (plain::dot(grad, value, dim) - delta)) * shape.scale;
      const double stored = plain::bf16_of(weight);
      for (int64_t d = 0; d < dim; ++d) {
        dv[static_cast<size_t>(j * dim + d)] += stored * grad[d];
        dq[static_cast<size_t>(row * dim + d)] += score_grad * key[d];
        dk[static_cast<size_t>(j * dim + d)] += score_grad * query[d];
      }
    }
  });
  const auto stored = [](const std::vector<double>& sums, const Floats& like) {
    Floats x({like.tensor().dim(0), like.tensor().dim(1), like.tensor().dim(2)});
    for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(plain::bf16_of(sums[static_cast<size_t>(i)]));
    return x;
  };
  return {stored(dq, q), stored(dk, k), stored(dv, v)};
}

// The largest and the mean-square error are at most twice those of `plain`. Numbers below 1e-5 are results of
// cancellation.
inline ::testing::AssertionResult within_twice(const Floats& actual, const Floats& plain, const Floats& expected) {
  if (!actual.gaps_intact()) return ::testing::AssertionFailure() << "memory outside the rows was written";
  struct Distance {
    double worst = 0, squares = 0;
    int64_t at = 0;
  };
  const auto distance = [&](const Floats& x) {
    Distance out;
    for (int64_t i = 0; i < x.size(); ++i) {
      const double d = std::fabs(double{x[i]} - expected[i]);
      if (!(d <= out.worst)) out.worst = d, out.at = i;
      out.squares += d * d;
    }
    out.squares = std::sqrt(out.squares / static_cast<double>(std::max<int64_t>(x.size(), 1)));
    return out;
  };
  const Distance ours = distance(actual), theirs = distance(plain);
  if (!(ours.worst <= 2 * theirs.worst + 1e-5))
    return ::testing::AssertionFailure() << "element " << ours.at << " is " << actual[ours.at] << ", expected "
                                         << expected[ours.at] << "; plain bf16 is off by " << theirs.worst
                                         << " at most";
  if (!(ours.squares <= 2 * theirs.squares + 1e-5))
    return ::testing::AssertionFailure() << "off by " << ours.squares << ", plain bf16 by " << theirs.squares;
  return ::testing::AssertionSuccess();
}

}  // namespace hone::test
