// Flash attention (Dao et al. 2022) with SIMD on the CPU. A unit of work is the query heads of one KV head over a tile
// of queries; it loops over the sequence's keys in blocks. The packed and the paged op run the same unit, so a query
// has the same bits in both.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/blocked.cpp"
#include <hwy/foreach_target.h>

#include "kernels/attention/tile-inl.h"

#ifndef HONE_ATTENTION_TILE
#define HONE_ATTENTION_TILE
namespace hone {

// Queries [first_query, first_query + num_queries) of a call. The first is at `position`. Each has `group` heads,
// starting with `first_head`.
struct AttentionTile {
  Tensor out, lse, q, sinks;
  KeyRows keys;
  int64_t first_query, num_queries, position, first_head, group;
  float scale;
  int64_t window;
};

}  // namespace hone
#endif

HWY_BEFORE_NAMESPACE();
namespace hone::HWY_NAMESPACE {

// Online softmax of one row of scores over one block, in place. Updates the running maximum `top` and sum `total`.
// Returns the factor that rescales earlier sums. Scores outside the span may hold anything, NaN included.
HWY_INLINE float soften(float* scores, Span span, float& top, float& total) {
  const Lanes d;
  const Vector lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  Vector highest = lowest;
  for (int64_t j = 0; j < block_keys; j += lanes)
    highest = hn::Max(highest, hn::IfThenElse(in_span(span, j), hn::LoadU(d, scores + j), lowest));
  const float before = top;
  top = std::max(top, hn::GetLane(hn::MaxOfLanes(d, highest)));
  RowSum sum;
  for (int64_t j = 0; j < block_keys; j += lanes) {
    const Vector weight =
        hn::IfThenElseZero(in_span(span, j), exp_f32(d, hn::Sub(hn::LoadU(d, scores + j), hn::Set(d, top))));
    hn::StoreU(weight, d, scores + j);
    sum.at(j) = hn::Add(sum.at(j), weight);
  }
  const float factor = before == top ? 1.0f : hn::GetLane(exp_f32(d, hn::Set(d, before - top)));
  total = total * factor + sum.total();
  return factor;
}

// sums[i] += weights[i, j] * values[j] over the span of row i only. A masked key never reaches a query, even if it is
// NaN.
HWY_INLINE void add_values(float* sums, int64_t columns, const float* weights, const Span* spans, int64_t rows,
                           const float* values) {
  Span common = spans[0];
  for (int64_t i = 1; i < rows; ++i)
    common = {std::max(common.first, spans[i].first), std::min(common.last, spans[i].last)};
  if (common.empty()) common = {block_keys, block_keys};
  for (int64_t i = 0; i < rows; ++i)
    if (spans[i].first < common.first)
      multiply(sums + i * columns, columns, {weights + i * block_keys, block_keys, 1}, 1, values, columns,
               spans[i].first, std::min(common.first, spans[i].last), columns, true);
  if (!common.empty())
    multiply(sums, columns, {weights, block_keys, 1}, rows, values, columns, common.first, common.last, columns, true);
  for (int64_t i = 0; i < rows; ++i)
    if (spans[i].last > common.last)
      multiply(sums + i * columns, columns, {weights + i * block_keys, block_keys, 1}, 1, values, columns, common.last,
               spans[i].last, columns, true);
}

// What the sums of a row are divided by, and its log-sum-exp. A sink joins the total under the larger maximum.
struct RowEnd {
  float divisor, lse;
};
inline RowEnd end_of_row(float top, float total, float sink) {
  const float highest = std::max(top, sink);
  const double of_keys = std::exp(double{top} - highest),
               sum = double{total} * of_keys + std::exp(double{sink} - highest);
  return {static_cast<float>(sum / of_keys), highest + static_cast<float>(std::log(sum))};
}

void attend_tile(const AttentionTile& tile, float* scratch) {
  const int64_t dim = tile.q.dim(2), columns = padded(dim), rows = tile.num_queries * tile.group,
                last_position = tile.position + tile.num_queries - 1;
  float* queries = scratch;
  float* sums = queries + rows * columns;
  float* scores = sums + rows * columns;
  float* keys = scores + rows * block_keys;
  float* values = keys + dim * block_keys;
  float* tops = values + block_keys * columns;
  float* totals = tops + rows;
  const auto row_of = [&](const Tensor& x, int64_t r) {
    return x.row<float>(tile.first_query + r / tile.group) + (tile.first_head + r % tile.group) * dim;
  };
  for (int64_t r = 0; r < rows; ++r) pack_row(queries + r * columns, row_of(tile.q, r), dim, tile.scale);
  std::fill_n(sums, rows * columns, 0.0f);
  std::fill_n(tops, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(totals, rows, 0.0f);

  for (int64_t start = first_key(tile.position, tile.window) / block_keys * block_keys; start <= last_position;
       start += block_keys) {
    const int64_t count = std::min(block_keys, last_position + 1 - start);
    pack_columns(keys, count, dim, [&](int64_t j) { return tile.keys.k_row(start + j); });
    for (int64_t j = 0; j < count; ++j) pack_row(values + j * columns, tile.keys.v_row(start + j), dim, 1.0f);
    for (int64_t r = 0; r < rows; r += 4) {
      const int64_t few = std::min<int64_t>(4, rows - r);
      Span spans[4];
      int64_t furthest = 0;
      for (int64_t i = 0; i < few; ++i) {
        spans[i] = visible(tile.position + (r + i) / tile.group, tile.window, start);
        if (!spans[i].empty()) furthest = std::max(furthest, spans[i].last);
      }
      if (furthest == 0) continue;
      multiply(scores + r * block_keys, block_keys, {queries + r * columns, columns, 1}, few, keys, block_keys, 0, dim,
               (furthest + lanes - 1) / lanes * lanes, false);
      for (int64_t i = 0; i < few; ++i) {
        if (spans[i].empty()) continue;
        const float factor = soften(scores + (r + i) * block_keys, spans[i], tops[r + i], totals[r + i]);
        if (factor != 1)
          for (int64_t c = 0; c < columns; c += lanes)
            hn::StoreU(hn::Mul(hn::LoadU(Lanes(), sums + (r + i) * columns + c), hn::Set(Lanes(), factor)), Lanes(),
                       sums + (r + i) * columns + c);
      }
      add_values(sums + r * columns, columns, scores + r * block_keys, spans, few, values);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t head = tile.first_head + r % tile.group;
    const RowEnd end = end_of_row(tops[r], totals[r], sink_of(tile.sinks, head));
    float* out = row_of(tile.out, r);
    for (int64_t i = 0; i < dim; ++i) out[i] = sums[r * columns + i] / end.divisor;
    if (tile.lse) tile.lse.row<float>(tile.first_query + r / tile.group)[head] = end.lse;
  }
}

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/scratch_units.h"

namespace hone {
namespace {

HWY_EXPORT(attend_tile);

// Reads the keys of `all`, not those of `args`.
void attend_all(Context& context, const AttentionForward& args, const KeySource& all) {
  check_sinks(args);
  const Tensor &q = args.q, &offsets = args.offsets;
  const int64_t sequences = offsets.dim(0) - 1, dim = q.dim(2), group = q.dim(1) / all.num_kv_heads;
  const int64_t queries =
      std::max<int64_t>(1, 128 / group);  // queries per tile: about 128 rows share the packing of a block's keys
  const int32_t* at = offsets.ptr<int32_t>();
  const ScratchScope scope(context);
  int64_t* tiles =
      context.scratch().take(DType::i64, {sequences + 1}).ptr<int64_t>();  // number of tiles before each sequence
  tiles[0] = 0;
  for (int64_t s = 0; s < sequences; ++s) tiles[s + 1] = tiles[s] + (at[s + 1] - at[s] + queries - 1) / queries;
  const int64_t rows = queries * group, columns = (dim + 15) / 16 * 16, units = tiles[sequences] * all.num_kv_heads;
  const int64_t floats = rows * (2 * columns + 64 + 2) + 64 * (dim + columns);
  for_each_unit(context, units, floats, [&](int64_t index, float* scratch) {
    const int64_t unit = units - 1 - index, tile = unit / all.num_kv_heads,
                  kv_head = unit % all.num_kv_heads;  // the later tiles of a sequence take longest, so they start first
    const int64_t s = std::upper_bound(tiles, tiles + sequences + 1, tile) - tiles - 1,
                  first = at[s] + (tile - tiles[s]) * queries;
    HWY_DYNAMIC_DISPATCH(attend_tile)
    ({.out = args.out,
      .lse = args.lse,
      .q = q,
      .sinks = args.sinks,
      .keys = all.rows(s, kv_head),
      .first_query = first,
      .num_queries = std::min<int64_t>(queries, at[s + 1] - first),
      .position = all.position(s, first),
      .first_head = kv_head * group,
      .group = group,
      .scale = args.shape.scale,
      .window = args.shape.window},
     scratch);
  });
}

void forward(Context& context, const AttentionForward& args) {
  attend_all(context, args, packed_keys(attention_forward, args.out, args.lse, args.q, args.k, args.v, args.offsets));
}

void paged(Context& context, const AttentionPaged& args) {
  const ScratchScope scope(context);
  const PagedKv kv = in_f32(context, attention_paged, args.cache, args.offsets.dim(0) - 1);
  attend_all(context, queries_of(args), paged_keys(attention_paged, args.out, args.q, kv, args.offsets));
}

bool forward_supports(const AttentionForward& args) { return args.q.dim(2) <= 256 && args.shape.softcap == 0; }
bool paged_supports(const AttentionPaged& args) { return args.q.dim(2) <= 256 && args.shape.softcap == 0; }

[[maybe_unused]] const bool added =
    attention_forward.add({"blocked", DeviceKind::cpu, forward, 10, forward_supports}) &&
    attention_paged.add({"blocked", DeviceKind::cpu, paged, 10, paged_supports});

}  // namespace
}  // namespace hone
#endif
