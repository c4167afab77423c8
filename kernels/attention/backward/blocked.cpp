// Backward pass of flash attention (Dao et al. 2022) on the CPU. A unit of work is one KV head of one sequence. It
// visits key blocks in ascending order and queries in ascending order within them. Each gradient is therefore one sum
// in one order, whichever thread computes it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/backward/blocked.cpp"
#include <hwy/foreach_target.h>

#include "kernels/attention/tile-inl.h"

#ifndef HONE_ATTENTION_GRADIENT_UNIT
#define HONE_ATTENTION_GRADIENT_UNIT
namespace hone {

// dq is zero when a unit starts. delta [T, H] holds dout . out.
struct AttentionGradientUnit {
  Tensor dq, dk, dv, dout, lse, delta, q, k, v;
  int64_t begin, length, kv_head, group, queries_per_tile;
  AttentionShape shape;
};

}  // namespace hone
#endif

HWY_BEFORE_NAMESPACE();
namespace hone::HWY_NAMESPACE {

void attention_delta(Tensor delta, Tensor dout, Tensor out, int64_t begin, int64_t end) {
  const int64_t heads = out.dim(1), dim = out.dim(2);
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const float *a = dout.row<float>(t) + h * dim, *b = out.row<float>(t) + h * dim;
      RowSum sum;
      for_each_vector(
          dim, [&](int64_t i, auto part) { sum.at(i) = hn::MulAdd(part.load(a + i), part.load(b + i), sum.at(i)); });
      delta.row<float>(t)[h] = sum.total();
    }
}

// For one row of a block: weights = exp(scores - lse) within the span, else 0; score_grads = weights * (score_grads -
// delta).
HWY_INLINE void soften_gradient(float* weights, float* score_grads, Span span, float log_sum, float delta) {
  const Lanes d;
  for (int64_t j = 0; j < block_keys; j += lanes) {
    const Vector weight =
        hn::IfThenElseZero(in_span(span, j), exp_f32(d, hn::Sub(hn::LoadU(d, weights + j), hn::Set(d, log_sum))));
    hn::StoreU(weight, d, weights + j);
    hn::StoreU(hn::IfThenElseZero(in_span(span, j),
                                  hn::Mul(weight, hn::Sub(hn::LoadU(d, score_grads + j), hn::Set(d, delta)))),
               d, score_grads + j);
  }
}

void attention_gradient_unit(const AttentionGradientUnit& unit, float* scratch) {
  const int64_t dim = unit.q.dim(2), columns = padded(dim), group = unit.group, tile = unit.queries_per_tile,
                max_rows = tile * group, window = unit.shape.window;
  float* queries = scratch;
  float* grads = queries + max_rows * columns;
  float* query_grads = grads + max_rows * columns;
  float* weights = query_grads + max_rows * columns;
  float* score_grads = weights + max_rows * block_keys;
  float* keys_across = score_grads + max_rows * block_keys;
  float* values_across = keys_across + dim * block_keys;
  float* keys = values_across + dim * block_keys;
  float* key_grads = keys + block_keys * columns;
  float* value_grads = key_grads + block_keys * columns;
  const int64_t kv_column = unit.kv_head * dim;

  for (int64_t start = 0; start < unit.length; start += block_keys) {
    const int64_t count = std::min(block_keys, unit.length - start),
                  end = window > 0 ? std::min(unit.length, start + count - 1 + window) : unit.length;
    pack_columns(keys_across, count, dim,
                 [&](int64_t j) { return unit.k.row<float>(unit.begin + start + j) + kv_column; });
    pack_columns(values_across, count, dim,
                 [&](int64_t j) { return unit.v.row<float>(unit.begin + start + j) + kv_column; });
    for (int64_t j = 0; j < count; ++j)
      pack_row(keys + j * columns, unit.k.row<float>(unit.begin + start + j) + kv_column, dim, unit.shape.scale);
    std::fill_n(key_grads, 2 * block_keys * columns, 0.0f);

    for (int64_t first = start / tile * tile; first < end; first += tile) {
      const int64_t rows = std::min(tile, end - first) * group;
      const auto token = [&](int64_t r) { return unit.begin + first + r / group; };
      const auto head = [&](int64_t r) { return unit.kv_head * group + r % group; };
      for (int64_t r = 0; r < rows; ++r) {
        pack_row(queries + r * columns, unit.q.row<float>(token(r)) + head(r) * dim, dim, unit.shape.scale);
        pack_row(grads + r * columns, unit.dout.row<float>(token(r)) + head(r) * dim, dim, 1.0f);
      }
      multiply(weights, block_keys, {queries, columns, 1}, rows, keys_across, block_keys, 0, dim, block_keys, false);
      multiply(score_grads, block_keys, {grads, columns, 1}, rows, values_across, block_keys, 0, dim, block_keys,
               false);
      for (int64_t r = 0; r < rows; ++r)
        soften_gradient(weights + r * block_keys, score_grads + r * block_keys,
                        visible(first + r / group, window, start), unit.lse.row<float>(token(r))[head(r)],
                        unit.delta.row<float>(token(r))[head(r)]);
      multiply(value_grads, columns, {weights, 1, block_keys}, count, grads, columns, 0, rows, columns, true);
      multiply(key_grads, columns, {score_grads, 1, block_keys}, count, queries, columns, 0, rows, columns, true);
      multiply(query_grads, columns, {score_grads, block_keys, 1}, rows, keys, columns, 0, count, columns, false);
      for (int64_t r = 0; r < rows; ++r) {
        float* out = unit.dq.row<float>(token(r)) + head(r) * dim;
        for (int64_t i = 0; i < dim; ++i) out[i] += query_grads[r * columns + i];
      }
    }
    for (int64_t j = 0; j < count; ++j) {
      std::copy_n(key_grads + j * columns, dim, unit.dk.row<float>(unit.begin + start + j) + kv_column);
      std::copy_n(value_grads + j * columns, dim, unit.dv.row<float>(unit.begin + start + j) + kv_column);
    }
  }
}

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/scratch_units.h"

namespace hone {
namespace {

HWY_EXPORT(attention_delta);
HWY_EXPORT(attention_gradient_unit);

void backward(Context& context, const AttentionBackward& args) {
  packed_keys(attention_backward, args.out, args.lse, args.q, args.k, args.v, args.offsets);
  check_gradients(args);
  HONE_CHECK(args.lse, "attention_backward: lse is empty; pass the lse of attention_forward");
  const int64_t tokens = args.q.dim(0), heads = args.q.dim(1), dim = args.q.dim(2), kv_heads = args.k.dim(1),
                group = heads / kv_heads, sequences = args.offsets.dim(0) - 1;
  const int64_t queries = std::max<int64_t>(1, 64 / group), rows = queries * group, columns = (dim + 15) / 16 * 16;
  const int32_t* at = args.offsets.ptr<int32_t>();
  const ScratchScope scope(context);
  const Tensor delta = context.scratch().take(DType::f32, {tokens, heads});
  parallel_for(tokens, 64, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(attention_delta)(delta, args.dout, args.out, begin, end);
  });
  context.zero(args.dq);
  const int64_t floats =
      rows * (int64_t{3} * columns + int64_t{2} * 64) + int64_t{64} * (int64_t{2} * dim + int64_t{3} * columns);
  for_each_unit(context, sequences * kv_heads, floats, [&](int64_t index, float* scratch) {
    const int64_t s = index / kv_heads;
    HWY_DYNAMIC_DISPATCH(attention_gradient_unit)
    ({.dq = args.dq,
      .dk = args.dk,
      .dv = args.dv,
      .dout = args.dout,
      .lse = args.lse,
      .delta = delta,
      .q = args.q,
      .k = args.k,
      .v = args.v,
      .begin = at[s],
      .length = at[s + 1] - at[s],
      .kv_head = index % kv_heads,
      .group = group,
      .queries_per_tile = queries,
      .shape = args.shape},
     scratch);
  });
  add_sink_gradients(args, delta);
}

bool supports(const AttentionBackward& args) { return args.q.dim(2) <= 256 && args.shape.softcap == 0; }

[[maybe_unused]] const bool added = attention_backward.add({"blocked", DeviceKind::cpu, backward, 10, supports});

}  // namespace
}  // namespace hone
#endif
