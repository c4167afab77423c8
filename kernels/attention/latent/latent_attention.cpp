// CPU specification of latent attention: one query and head at a time, with f64 sums. Work is divided by tokens, and
// each sum belongs to one of them, so the bits do not depend on threads.
#include "kernels/attention/latent/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/parallel_for.h"
#include "kernels/attention/args.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

// Eight partial sums, which the compiler computes side by side, added in ascending order.
double dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t lanes = 8;
  double parts[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane) parts[lane] += double{a[i + lane]} * double{b[i + lane]};
  for (; i < count; ++i) parts[i % lanes] += double{a[i]} * double{b[i]};
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

// The sequence that holds token t.
int64_t sequence_of(const Tensor& offsets, int64_t t) {
  const int32_t* at = offsets.ptr<int32_t>();
  return std::upper_bound(at, at + offsets.dim(0), static_cast<int32_t>(t)) - at - 1;
}

struct LatentCall {
  Tensor out, lse, q;
  KeySource keys;
  AttentionShape shape;
};

// Attends one query to its keys. weights and sums are scratch.
void attend(const LatentCall& call, int64_t t, int64_t h, const KeyRows& keys, int64_t position,
            std::vector<double>& weights, std::vector<double>& sums) {
  const int64_t width = call.q.dim(2), rank = call.out.dim(2), first = first_key(position, call.shape.window);
  const float* q = call.q.row<float>(t) + h * width;
  float* out = call.out.row<float>(t) + h * rank;
  double top = -INFINITY, total = 0;
  weights.resize(static_cast<size_t>(position + 1 - first));
  for (int64_t j = first; j <= position; ++j) {
    double& score = weights[static_cast<size_t>(j - first)];
    score = double{call.shape.scale} * dot(q, keys.k_row(j), width);
    top = std::max(top, score);
  }
  sums.assign(static_cast<size_t>(rank), 0.0);
  for (int64_t j = first; j <= position; ++j) {
    const double weight = std::exp(weights[static_cast<size_t>(j - first)] - top);
    const float* row = keys.k_row(j);
    total += weight;
    for (int64_t i = 0; i < rank; ++i) sums[static_cast<size_t>(i)] += weight * double{row[i]};
  }
  for (int64_t i = 0; i < rank; ++i) out[i] = static_cast<float>(sums[static_cast<size_t>(i)] / total);
  if (call.lse) call.lse.row<float>(t)[h] = static_cast<float>(top + std::log(total));
}

void attend_all(const LatentCall& call) {
  parallel_for(call.q.dim(0), 1, [&](int64_t begin, int64_t end) {
    std::vector<double> weights, sums;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t s = sequence_of(call.keys.offsets, t);
      const KeyRows keys = call.keys.rows(s, 0);
      for (int64_t h = 0; h < call.q.dim(1); ++h) attend(call, t, h, keys, call.keys.position(s, t), weights, sums);
    }
  });
}

// The rows as the one KV head of all query heads.
Tensor as_head(const Tensor& rows) { return rows.view({rows.dim(0), 1, rows.dim(1)}); }

void forward(Context&, const LatentAttentionForward& args) {
  check_latent_attention(args, DType::f32);
  check_offsets(latent_attention_forward, args.offsets, args.q.dim(0));
  const Tensor rows = as_head(args.rows);
  attend_all({.out = args.out,
              .lse = args.lse,
              .q = args.q,
              .keys = {.k = rows, .v = rows, .offsets = args.offsets, .block_table = {}, .lengths = {}},
              .shape = args.shape});
}

// Values of offsets, block table and lengths, which the host can read.
void check_cache_values(const LatentAttentionPaged& args) {
  const OpBase& op = latent_attention_paged;
  const LatentCache& cache = args.cache;
  check_offsets(op, args.offsets, args.q.dim(0));
  const int64_t max_blocks = cache.block_table.dim(1), blocks = cache.rows.dim(0) / cache.block_size;
  for (int64_t s = 0; s + 1 < args.offsets.dim(0); ++s) {
    const int64_t length = cache.lengths.ptr<int32_t>()[s],
                  tokens = args.offsets.ptr<int32_t>()[s + 1] - args.offsets.ptr<int32_t>()[s];
    HONE_CHECK(length >= tokens && length <= max_blocks * cache.block_size, op.name(), ": sequence ", s, " has ",
               length, " rows; wants at least the ", tokens, " tokens of this call and at most the ",
               max_blocks * cache.block_size, " of its block table");
    for (int64_t b = 0; b * cache.block_size < length; ++b) {
      const int32_t block = cache.block_table.row<int32_t>(s)[b];
      HONE_CHECK(block >= 0 && block < blocks, op.name(), ": block_table[", s, ", ", b, "] is ", block,
                 "; the cache has ", blocks, " blocks");
    }
  }
}

void paged(Context&, const LatentAttentionPaged& args) {
  check_latent_attention(args, DType::f32);
  check_cache_values(args);
  const Tensor rows = as_head(args.cache.rows);
  attend_all({.out = args.out,
              .lse = {},
              .q = args.q,
              .keys = {.k = rows,
                       .v = rows,
                       .offsets = args.offsets,
                       .block_table = args.cache.block_table,
                       .lengths = args.cache.lengths,
                       .block_size = args.cache.block_size},
              .shape = args.shape});
}

// With p_j = exp(scale * q . k_j - lse) and delta = dout . out:
// ds_j = p_j * (dout . v_j - delta) * scale,  dq = sum of ds_j * k_j,  drow_j = sum of ds_j * q, and of p_j * dout in
// its first R columns.
struct LatentGradient {
  const LatentAttentionBackward& args;

  // Of a query and a key: p and ds.
  struct Pair {
    double weight, score_grad;
  };
  const float* q(int64_t t, int64_t h) const { return args.q.row<float>(t) + h * args.q.dim(2); }
  const float* dout(int64_t t, int64_t h) const { return args.dout.row<float>(t) + h * args.dout.dim(2); }
  double delta(int64_t t, int64_t h) const {
    return dot(dout(t, h), args.out.row<float>(t) + h * args.out.dim(2), args.out.dim(2));
  }
  Pair pair(int64_t t, int64_t h, int64_t j, double delta_of_query) const {
    const float* row = args.rows.row<float>(j);
    const double score = double{args.shape.scale} * dot(q(t, h), row, args.q.dim(2)),
                 weight = std::exp(score - double{args.lse.row<float>(t)[h]});
    return {weight, weight * (dot(dout(t, h), row, args.out.dim(2)) - delta_of_query) * double{args.shape.scale}};
  }
  // Writes dq of one token. begin: the first token of its sequence.
  void write_dq(int64_t t, int64_t begin, std::vector<double>& sums) const {
    const int64_t width = args.q.dim(2);
    for (int64_t h = 0; h < args.q.dim(1); ++h) {
      const double own = delta(t, h);
      sums.assign(static_cast<size_t>(width), 0.0);
      for (int64_t j = begin + first_key(t - begin, args.shape.window); j <= t; ++j) {
        const double grad = pair(t, h, j, own).score_grad;
        const float* row = args.rows.row<float>(j);
        for (int64_t i = 0; i < width; ++i) sums[static_cast<size_t>(i)] += grad * double{row[i]};
      }
      float* to = args.dq.row<float>(t) + h * width;
      for (int64_t i = 0; i < width; ++i) to[i] = static_cast<float>(sums[static_cast<size_t>(i)]);
    }
  }
  // Writes drows of one token. end: past the last token of its sequence.
  void write_drow(int64_t j, int64_t end, const std::vector<double>& deltas, std::vector<double>& sums) const {
    const int64_t width = args.q.dim(2), rank = args.out.dim(2), heads = args.q.dim(1), window = args.shape.window;
    sums.assign(static_cast<size_t>(width), 0.0);
    for (int64_t t = j; t < (window > 0 ? std::min(end, j + window) : end); ++t)
      for (int64_t h = 0; h < heads; ++h) {
        const Pair of = pair(t, h, j, deltas[static_cast<size_t>(t * heads + h)]);
        for (int64_t i = 0; i < width; ++i) sums[static_cast<size_t>(i)] += of.score_grad * double{q(t, h)[i]};
        for (int64_t i = 0; i < rank; ++i) sums[static_cast<size_t>(i)] += of.weight * double{dout(t, h)[i]};
      }
    for (int64_t i = 0; i < width; ++i) args.drows.row<float>(j)[i] = static_cast<float>(sums[static_cast<size_t>(i)]);
  }
};

void backward(Context&, const LatentAttentionBackward& args) {
  check_latent_attention(args, DType::f32);
  check_offsets(latent_attention_backward, args.offsets, args.q.dim(0));
  const LatentGradient gradient{args};
  const int64_t T = args.q.dim(0), H = args.q.dim(1);
  std::vector<double> deltas(static_cast<size_t>(T * H));
  parallel_for(T, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> sums;
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < H; ++h) deltas[static_cast<size_t>(t * H + h)] = gradient.delta(t, h);
      gradient.write_dq(t, args.offsets.ptr<int32_t>()[sequence_of(args.offsets, t)], sums);
    }
  });
  parallel_for(T, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> sums;
    for (int64_t j = begin; j < end; ++j)
      gradient.write_drow(j, args.offsets.ptr<int32_t>()[sequence_of(args.offsets, j) + 1], deltas, sums);
  });
}

[[maybe_unused]] const bool added = latent_attention_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    latent_attention_backward.add({"specification", DeviceKind::cpu, backward}) &&
                                    latent_attention_paged.add({"specification", DeviceKind::cpu, paged});

// Checks what the three ops share.
void check_latents(const OpBase& op, const Tensor& out, const Tensor& q, const Tensor& rows, const Tensor& offsets,
                   const AttentionShape& shape, DType dtype) {
  HONE_CHECK(q.rank == 3 && out.rank == 3 && rows.rank == 2, op.name(), ": wants q and out of 3 dims and rows of 2");
  const int64_t T = q.dim(0), H = q.dim(1), width = rows.dim(1), rank = out.dim(2);
  HONE_CHECK(H > 0 && rank > 0 && rank <= width, op.name(), ": ", H, " heads, rank ", rank, " and rows of ", width,
             " columns; the rank must be positive and at most the columns");
  HONE_CHECK(shape.softcap == 0, op.name(), ": softcap is ", shape.softcap, "; it must be 0");
  HONE_CHECK(shape.scale > 0, op.name(), ": scale is ", shape.scale, "; it must be positive");
  check_shape(op, "q", q, {T, H, width}, dtype);
  check_shape(op, "out", out, {T, H, rank}, dtype);
  check_shape(op, "rows", rows, {rows.dim(0), width}, dtype);
  check_shape(op, "offsets", offsets, {offsets.dim(0)}, DType::i32);
  HONE_CHECK(offsets.dim(0) > 0, op.name(), ": offsets is empty; it wants one number more than sequences");
}

}  // namespace

void check_latent_attention(const LatentAttentionForward& args, DType dtype) {
  const OpBase& op = latent_attention_forward;
  check_latents(op, args.out, args.q, args.rows, args.offsets, args.shape, dtype);
  check_shape(op, "rows", args.rows, {args.q.dim(0), args.rows.dim(1)}, dtype);
  check_optional(op, "lse", args.lse, {args.q.dim(0), args.q.dim(1)});
}

void check_latent_attention(const LatentAttentionBackward& args, DType dtype) {
  const OpBase& op = latent_attention_backward;
  const int64_t T = args.q.dim(0), H = args.q.dim(1), width = args.rows.dim(1);
  check_latents(op, args.out, args.q, args.rows, args.offsets, args.shape, dtype);
  check_shape(op, "rows", args.rows, {T, width}, dtype);
  check_shape(op, "lse", args.lse, {T, H});
  check_shape(op, "dq", args.dq, {T, H, width}, dtype);
  check_shape(op, "drows", args.drows, {T, width}, dtype);
  check_shape(op, "dout", args.dout, {T, H, args.out.dim(2)}, dtype);
}

void check_latent_attention(const LatentAttentionPaged& args, DType dtype) {
  const OpBase& op = latent_attention_paged;
  const LatentCache& cache = args.cache;
  const int64_t S = args.offsets.dim(0) - 1;
  check_latents(op, args.out, args.q, cache.rows, args.offsets, args.shape, dtype);
  check_shape(op, "block_table", cache.block_table, {S, cache.block_table.dim(1)}, DType::i32);
  check_shape(op, "lengths", cache.lengths, {S}, DType::i32);
  HONE_CHECK(cache.block_size > 0 && cache.block_size * cache.block_table.dim(1) < int64_t{1} << 30, op.name(), ": ",
             cache.block_table.dim(1), " blocks per sequence of ", cache.block_size,
             " slots; a sequence must have fewer than 2^30 slots, and a block at least one");
}

}  // namespace hone
