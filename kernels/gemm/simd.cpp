// gemm_forward on the CPU by Google Highway. A tile of y is a few rows by a few vectors of adjacent n. w is transposed
// into a small buffer, one panel of n and one part of K at a time. Each lane therefore runs the specification's chain
// of sums, and neither the vector width nor the parts of K change the bits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/simd.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/base/parallel_for.h"
#include "kernels/cpu/features.h"
#include "kernels/gemm/internal.h"

HWY_BEFORE_NAMESPACE();
namespace hone {
namespace HWY_NAMESPACE {
#if HWY_MAX_BYTES >= 32
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr int64_t lanes = HWY_LANES(float);
constexpr int tile_rows = lanes >= 16 ? 8 : 4;  // with tile_vectors: as many sums as fit the registers
constexpr int tile_vectors = 3;
constexpr int64_t panel = tile_vectors * lanes;  // columns of y per packed panel of w
constexpr int64_t block_rows = 256;              // rows of y that use a packed panel before it is dropped
constexpr int64_t packed_inner = 256;            // of K in a packed panel

// One vector of rows of w, starting at n; lanes past the last row repeat it.
struct WeightRows {
  const float* at[lanes];
  HWY_ATTR WeightRows(const Tensor& w, int64_t n) {
    for (int64_t i = 0; i < lanes; ++i) at[i] = w.row<float>(std::min(n + i, w.dim(0) - 1));
  }
};

// column[j] = w[n ..][k + j], j = 0 to 3.
HWY_ATTR HWY_INLINE void transpose(const WeightRows& rows, int64_t k, V (&column)[4]) {
  const D d;
  const hn::Repartition<double, D> d64;
  V quad[4];  // quad[i]: row 4 b + i in 128-bit block b
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    quad[i] = hn::LoadDup128(d, rows.at[lanes - 4 + i] + k);
#pragma GCC unroll 4
    for (int64_t b = lanes / 4 - 2; b >= 0; --b)
      quad[i] = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(4 * (b + 1))),
                               hn::LoadDup128(d, rows.at[4 * b + i] + k), quad[i]);
  }
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, quad[0], quad[1])),
             low23 = hn::BitCast(d64, hn::InterleaveLower(d, quad[2], quad[3]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, quad[0], quad[1])),
             high23 = hn::BitCast(d64, hn::InterleaveUpper(d, quad[2], quad[3]));
  column[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  column[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  column[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  column[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}
HWY_ATTR HWY_INLINE V gather(const WeightRows& rows, int64_t k) {
  alignas(64) float column[lanes];
  for (int64_t i = 0; i < lanes; ++i) column[i] = rows.at[i][k];
  return hn::Load(D(), column);
}

// Prefetches what is needed next, `ahead` of k: hardware prefetchers do not follow 16 short rows at a time.
HWY_ATTR HWY_INLINE void prefetch(const WeightRows& rows, int64_t k, int64_t ahead) {
  constexpr int64_t line = 16;
  if (k % line != 0) return;
#pragma GCC unroll 16
  for (int64_t i = 0; i < lanes; ++i) hwy::Prefetch(rows.at[i] + k + ahead);
}

// packed[k][0 .. lanes) = w[n ..][first + k].
HWY_ATTR void pack(const WeightRows& rows, int64_t first, int64_t count, int64_t ahead, float* packed) {
  const D d;
  int64_t k = 0;
  for (; k + 4 <= count; k += 4, packed += 4 * panel) {
    prefetch(rows, first + k, ahead);
    V column[4];
    transpose(rows, first + k, column);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) hn::Store(column[j], d, packed + j * panel);
  }
  for (; k < count; ++k, packed += panel) hn::Store(gather(rows, first + k), d, packed);
}

// Distance from the part of K at `first` to what is read after it, in the rows of w from n: the next part, or the
// first part `step` rows later.
int64_t next_read(const GemmForward& call, int64_t n, int64_t step, int64_t first) {
  if (first + packed_inner < call.w.dim(1)) return packed_inner;
  return n + 2 * step <= call.w.dim(0) ? step * call.w.row_stride - first : 0;
}

// Writes y[m][n ..] from its finished sum.
HWY_ATTR HWY_INLINE void finish(const GemmForward& call, int64_t m, int64_t n, V total) {
  const D d;
  const auto inside = hn::FirstN(d, static_cast<size_t>(call.y.dim(1) - n));
  if (call.bias) total = hn::Add(total, hn::MaskedLoad(inside, d, call.bias.ptr<float>() + n));
  if (call.residual) total = hn::Add(total, hn::MaskedLoad(inside, d, call.residual.row<float>(m) + n));
  hn::BlendedStore(total, inside, d, call.y.row<float>(m) + n);
}

// One part of K for `rows` rows from m and `vectors` vectors from n. partial [rows, panel] holds the chains of the
// parts before; the last part writes y.
template <int rows, int vectors>
HWY_ATTR void tile(const GemmForward& call, int64_t m, int64_t n, int64_t first, int64_t count, const float* packed,
                   float* partial) {
  const D d;
  V sum[rows][vectors];
  const float* x[rows];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    x[r] = call.x.row<float>(m + r) + first;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      sum[r][v] = first == 0 ? hn::Zero(d) : hn::Load(d, partial + r * panel + v * lanes);
  }
  for (int64_t k = 0; k < count; ++k, packed += panel) {
    V column[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) column[v] = hn::Load(d, packed + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const V factor = hn::Set(d, x[r][k]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[r][v] = hn::MulAdd(factor, column[v], sum[r][v]);
    }
  }
  const bool last = first + count == call.x.dim(1);
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      if (last)
        finish(call, m + r, n + v * lanes, sum[r][v]);
      else
        hn::Store(sum[r][v], d, partial + r * panel + v * lanes);
    }
}

// All of K for a call of `rows` rows and one vector from n: w goes from memory directly to registers, at memory speed.
// The next call is for n + lanes.
template <int rows>
HWY_ATTR void stream(const GemmForward& call, int64_t n) {
  const D d;
  const int64_t K = call.x.dim(1);
  const WeightRows w(call.w, n);
  const float* x[rows];
  V sum[rows];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    x[r] = call.x.row<float>(r);
    sum[r] = hn::Zero(d);
  }
  for (int64_t first = 0; first < K; first += packed_inner) {
    const int64_t end = std::min(K, first + packed_inner);
    const int64_t ahead = next_read(call, n, lanes, first);
    int64_t k = first;
    for (; k + 4 <= end; k += 4) {
      prefetch(w, k, ahead);
      V column[4];
      transpose(w, k, column);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) sum[r] = hn::MulAdd(hn::Set(d, x[r][k + j]), column[j], sum[r]);
    }
    for (; k < end; ++k) {
      const V column = gather(w, k);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) sum[r] = hn::MulAdd(hn::Set(d, x[r][k]), column, sum[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) finish(call, r, n, sum[r]);
}

using Tile = void (*)(const GemmForward&, int64_t, int64_t, int64_t, int64_t, const float*, float*);

template <int vectors, int... rows>
Tile tile_of(int64_t count, std::integer_sequence<int, rows...>) {
  static constexpr Tile tiles[] = {tile<rows + 1, vectors>...};
  return tiles[count - 1];
}
Tile tile_of(int64_t rows, int64_t vectors) {
  constexpr auto sequence = std::make_integer_sequence<int, tile_rows>();
  return vectors == 1   ? tile_of<1>(rows, sequence)
         : vectors == 2 ? tile_of<2>(rows, sequence)
                        : tile_of<3>(rows, sequence);
}

// Computes rows [m, end) of y, columns [n, n + panel).
HWY_ATTR void block(const GemmForward& call, int64_t m, int64_t end, int64_t n) {
  alignas(64) float packed[packed_inner * panel], partial[block_rows * panel];
  const int64_t N = call.y.dim(1), K = call.x.dim(1),
                vectors = std::min<int64_t>(tile_vectors, (N - n + lanes - 1) / lanes);
  const Tile full = tile_of(tile_rows, vectors);
  for (int64_t first = 0; first < K; first += packed_inner) {
    const int64_t count = std::min(packed_inner, K - first);
    const int64_t ahead = next_read(call, n, panel, first);
    for (int64_t v = 0; v < vectors; ++v)
      pack(WeightRows(call.w, n + v * lanes), first, count, ahead, packed + v * lanes);
    for (int64_t r = m; r < end; r += tile_rows) {
      const Tile run = end - r >= tile_rows ? full : tile_of(end - r, vectors);
      run(call, r, n, first, count, packed, partial + (r - m) * panel);
    }
  }
}

// Parts per thread; all of them if waking another thread costs more than it saves.
int64_t grain(const GemmForward& call, int64_t usual) {
  constexpr int64_t worth_sharing = int64_t{1} << 20;
  return std::max<int64_t>(call.y.dim(0), tile_rows) * call.w.size() < worth_sharing
             ? std::numeric_limits<int32_t>::max()
             : usual;
}

template <int... rows>
void stream_all(const GemmForward& call, std::integer_sequence<int, rows...>) {
  static constexpr void (*streams[])(const GemmForward&, int64_t) = {stream<rows + 1>...};
  const auto run = streams[call.y.dim(0) - 1];
  parallel_for((call.y.dim(1) + lanes - 1) / lanes, grain(call, 4), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) run(call, piece * lanes);
  });
}

void forward(const GemmForward& call) {
  const int64_t M = call.y.dim(0), panels = (call.y.dim(1) + panel - 1) / panel,
                blocks = (M + block_rows - 1) / block_rows;
  if (M == 0) return;
  if (M <= tile_rows) return stream_all(call, std::make_integer_sequence<int, tile_rows>());
  parallel_for(blocks * panels, grain(call, 1), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t m = piece / panels * block_rows;
      block(call, m, std::min(M, m + block_rows), piece % panels * panel);
    }
  });
}

}  // namespace
void gemm_forward_simd(const GemmForward& args) { forward(args); }
#else
void gemm_forward_simd(const GemmForward&) {}  // never called: supports() returns false
#endif
}  // namespace HWY_NAMESPACE
}  // namespace hone
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hone {
namespace {

HWY_EXPORT(gemm_forward_simd);

void run(Context&, const GemmForward& args) {
  check_gemm_forward(args);
  HWY_DYNAMIC_DISPATCH(gemm_forward_simd)(args);
}

// With K = 0 there is no chunk to sum.
bool supports(const GemmForward& args) { return has_fused_multiply_add() && args.x.dim(1) > 0; }

[[maybe_unused]] const bool added = gemm_forward.add({"simd", DeviceKind::cpu, run, 10, supports});

}  // namespace
}  // namespace hone
#endif
