// Parts of the blocked bodies of attention, forward and backward: key tiles of `block_keys` keys aligned to position 0,
// a small matrix product, and the packing of its rows. Compiled once for each instruction set.
#if defined(HONE_KERNELS_ATTENTION_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ATTENTION_TILE_INL_H
#undef HONE_KERNELS_ATTENTION_TILE_INL_H
#else
#define HONE_KERNELS_ATTENTION_TILE_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/attention/args.h"
#include "kernels/attention/key_tile.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = RowTag;
using Vector = RowVector;
constexpr int64_t lanes = row_lanes;
constexpr int64_t block_keys = 64;
static_assert(max_key_tile % block_keys == 0);
// Vector registers per row of the small product; its accumulators are 4 rows of them.
constexpr int wide = lanes >= 16 ? 4 : 2;

inline int64_t padded(int64_t dim) { return (dim + 15) / 16 * 16; }

// A matrix's element (i, k) lies at data[i * row + k * column].
struct Weights {
  const float* data;
  int64_t row, column;
};

template <int R, int N>
HWY_INLINE void multiply_tile(float* out, int64_t out_row, Weights w, const float* m, int64_t m_row, int64_t begin,
                              int64_t end, bool add) {
  const Lanes d;
  Vector sum[R][N];
#pragma GCC unroll 4
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sum[i][n] = add ? hn::LoadU(d, out + i * out_row + n * lanes) : hn::Zero(d);
  for (int64_t k = begin; k < end; ++k) {
    Vector right[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) right[n] = hn::LoadU(d, m + k * m_row + n * lanes);
#pragma GCC unroll 4
    for (int i = 0; i < R; ++i) {
      const Vector left = hn::Set(d, w.data[i * w.row + k * w.column]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sum[i][n] = hn::MulAdd(left, right[n], sum[i][n]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) hn::StoreU(sum[i][n], d, out + i * out_row + n * lanes);
}

template <int R>
void multiply_rows(float* out, int64_t out_row, Weights w, const float* m, int64_t m_row, int64_t begin, int64_t end,
                   int64_t columns, bool add) {
  int64_t c = 0;
  for (; c + wide * lanes <= columns; c += wide * lanes)
    multiply_tile<R, wide>(out + c, out_row, w, m + c, m_row, begin, end, add);
  for (; c < columns; c += lanes) multiply_tile<R, 1>(out + c, out_row, w, m + c, m_row, begin, end, add);
}

// out[i, 0:columns) = (add ? out : 0) + sum over k in [begin, end) of w(i, k) * m[k, 0:columns), for rows i in
// [0, rows). Each element is one chain of fused multiply-adds in ascending k. Its bits depend neither on the other rows
// nor on the limits of k of the calls. columns is rounded up to full vectors.
inline void multiply(float* out, int64_t out_row, Weights w, int64_t rows, const float* m, int64_t m_row, int64_t begin,
                     int64_t end, int64_t columns, bool add) {
  for (int64_t i = 0; i < rows; i += 4) {
    const Weights part{w.data + i * w.row, w.row, w.column};
    float* to = out + i * out_row;
    switch (rows - i) {
      case 1:
        multiply_rows<1>(to, out_row, part, m, m_row, begin, end, columns, add);
        break;
      case 2:
        multiply_rows<2>(to, out_row, part, m, m_row, begin, end, columns, add);
        break;
      case 3:
        multiply_rows<3>(to, out_row, part, m, m_row, begin, end, columns, add);
        break;
      default:
        multiply_rows<4>(to, out_row, part, m, m_row, begin, end, columns, add);
    }
  }
}

// to[0:dim) = scale * from, then zeros up to padded(dim).
inline void pack_row(float* to, const float* from, int64_t dim, float scale) {
  const Lanes d;
  int64_t i = 0;
  for (; i + lanes <= dim; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, scale)), d, to + i);
  for (; i < dim; ++i) to[i] = from[i] * scale;
  for (; i < padded(dim); ++i) to[i] = 0;
}

// Four rows of dim floats become columns j .. j+3 of to [dim, block_keys].
template <class D4>
HWY_INLINE void transpose_four(D4 d4, float* to, const float* const* rows, int64_t dim) {
  int64_t i = 0;
  if constexpr (hn::MaxLanes(D4()) == 4) {
    for (; i + 4 <= dim; i += 4) {
      const auto r0 = LoadU(d4, rows[0] + i), r1 = LoadU(d4, rows[1] + i), r2 = LoadU(d4, rows[2] + i),
                 r3 = LoadU(d4, rows[3] + i);
      const auto even_low = InterleaveLower(d4, r0, r2), odd_low = InterleaveLower(d4, r1, r3);
      const auto even_high = InterleaveUpper(d4, r0, r2), odd_high = InterleaveUpper(d4, r1, r3);
      StoreU(InterleaveLower(d4, even_low, odd_low), d4, to + i * block_keys);
      StoreU(InterleaveUpper(d4, even_low, odd_low), d4, to + (i + 1) * block_keys);
      StoreU(InterleaveLower(d4, even_high, odd_high), d4, to + (i + 2) * block_keys);
      StoreU(InterleaveUpper(d4, even_high, odd_high), d4, to + (i + 3) * block_keys);
    }
  }
  for (; i < dim; ++i)
    for (int64_t j = 0; j < 4; ++j) to[i * block_keys + j] = rows[j][i];
}

// to [dim, block_keys]: column j is row(j), for j < count; zeros after that.
template <class Row>
void pack_columns(float* to, int64_t count, int64_t dim, Row row) {
  alignas(64) static constexpr float zeros[256] = {};
  for (int64_t j = 0; j < block_keys; j += 4) {
    const float* rows[4];
    for (int64_t l = 0; l < 4; ++l) rows[l] = j + l < count ? row(j + l) : zeros;
    transpose_four(hn::CappedTag<float, 4>(), to + j, rows, dim);
  }
}

// The keys [first, last) of one key tile that a query sees.
struct Span {
  int64_t first, last;
  bool empty() const { return first >= last; }
};
inline Span visible(int64_t position, int64_t window, int64_t block_start) {
  return {std::max<int64_t>(first_key(position, window) - block_start, 0),
          std::min(position + 1 - block_start, block_keys)};
}
// The mask of columns i to i + lanes of a key tile that lie in the span.
HWY_INLINE hn::Mask<Lanes> in_span(Span span, int64_t i) {
  const Lanes d;
  const auto column = hn::Iota(d, static_cast<float>(i));
  return hn::And(hn::Ge(column, hn::Set(d, static_cast<float>(span.first))),
                 hn::Lt(column, hn::Set(d, static_cast<float>(span.last))));
}

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
