// Passes of the lm_head ops over f32 logits in global memory (logprob_sm90.cu fuses them with the GEMM).
//
// Use       any dtype and alignment.
// Tile      sums_kernel, gradient_kernel: 8 rows by 512 columns (8 chunks of 64) per block. finish_kernel,
//           guess_kernel: 8 rows per block. scale_kernel, scale_rows_kernel: one row per block.
// Roles     8 warps. One row per warp; eight lanes share two chunks. In scale_kernel and scale_rows_kernel all threads
//           share a row.
// Pipeline  none: a thread loads both chunks before it uses the first.
// Smem      none.
// Numerics  f32 in the order of logsumexp.cuh, so the bits equal those of the sampler and of logprob_sm90.cu.
// PDL       none.
// Limits    none.
#include "kernels/lm_head/logprob_rows.cuh"

namespace hone {
namespace {

constexpr int threads = 256, warps = threads / 32;
constexpr float guess_margin = 30, most_shift = 50;

// A block of logits and its place in the vocabulary.
struct Logits {
  const float* data;
  int64_t stride;
  int rows, columns;
  int64_t first;  // vocabulary index of its first column
  bool packed;

  Logits(const Tensor& x, int64_t first_)
      : data(numbers<const float>(x)),
        stride(x.row_stride),
        rows(static_cast<int>(x.dim(0))),
        columns(static_cast<int>(x.dim(1))),
        first(first_),
        packed(x.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0) {}
};

// A warp takes eight chunks of one row; eight lanes take two of them.
constexpr int chunks_per_warp = 8;
struct RowPosition {
  int row, columns[2];
  __device__ RowPosition() : row(static_cast<int>(blockIdx.y * warps + threadIdx.x / 32)) {
    const int chunk = static_cast<int>(blockIdx.x * chunks_per_warp + threadIdx.x % 32 / 8);
    columns[0] = chunk * logsumexp_cuda_chunk;
    columns[1] = (chunk + 4) * logsumexp_cuda_chunk;
  }
};
dim3 grid_of(const Tensor& logits) {
  return dim3(static_cast<unsigned>((num_logsumexp_chunks(logits.dim(1)) + chunks_per_warp - 1) / chunks_per_warp),
              static_cast<unsigned>((logits.dim(0) + warps - 1) / warps));
}

// Stores the first `count` of four elements to y.
template <class T>
__device__ void store_four(T* y, const float* x, int count, bool packed) {
  if (packed && count >= 4) {
    const float four[4] = {x[0], x[1], x[2], x[3]};
    store_vec(y, four);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < count) y[j] = from_f32<T>(x[j]);
  }
}
template <class T>
bool fours(const Tensor& x) {
  return x.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % (4 * sizeof(T)) == 0;
}
template <class T>
__device__ void store_chunk(T* row, const float (&x)[8], int column, int columns, bool packed) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = column + 32 * i + 4 * static_cast<int>(threadIdx.x % 8);
    store_four(row + at, x + 4 * i, columns - at, packed);
  }
}

// T: dtype in which exponentials are written (float or bf16); void: they are not written.
template <bool weighted, class T>
__global__ void __launch_bounds__(threads)
    sums_kernel(HeadRowsView rows, Logits logits, T* exponentials, int64_t stride, bool packed) {
  const RowPosition at;
  if (at.row >= logits.rows) return;
  const float* row = logits.data + at.row * logits.stride;
  float x[2][8];
#pragma unroll
  for (int c = 0; c < 2; ++c) load_chunk(x[c], row, at.columns[c], logits.columns, logits.packed);
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int column = at.columns[c];
    const ChunkSums sums = chunk_sums_of_lanes<weighted>(x[c], rows.inv_temperature);
    if (column >= logits.columns) continue;
    if (threadIdx.x % 8 == 0) {
      const int64_t chunk = int64_t{at.row} * rows.num_chunks + (logits.first + column) / logsumexp_cuda_chunk;
      rows.chunks[chunk] = {sums.max, sums.sum};
      if constexpr (weighted) rows.chunk_weighted[chunk] = sums.weighted;
      const int64_t target = rows.targets[at.row] - logits.first - column;
      if (target >= 0 && target < logsumexp_cuda_chunk)
        rows.target_z[at.row] = row[column + target] * rows.inv_temperature;
    }
    if constexpr (!std::is_void_v<T>) {
      const float factor = rows.from_chunk(sums.max, at.row);
#pragma unroll
      for (float& e : x[c]) e *= factor;
      store_chunk(exponentials + at.row * stride + logits.first, x[c], column, logits.columns, packed);
    }
  }
}

// One warp per row: merges the chunks to lse, log-prob and entropy.
__global__ void __launch_bounds__(threads) finish_kernel(HeadRowsView rows, int count, int64_t V) {
  const int row = static_cast<int>(blockIdx.x * warps + threadIdx.x / 32);
  if (row >= count) return;
  const int64_t first = int64_t{row} * rows.num_chunks;
  const RowSums sums =
      merge_chunks(rows.chunks + first, rows.chunk_weighted ? rows.chunk_weighted + first : nullptr, rows.num_chunks);
  if (threadIdx.x % 32 != 0) return;
  const float lse = sums.value();
  rows.lse[row] = lse;
  const bool known = rows.targets[row] >= 0 && rows.targets[row] < V;
  if (rows.logp) rows.logp[row] = known ? rows.target_z[row] - lse : NAN;
  if (rows.entropy) rows.entropy[row] = sums.entropy();
  if (rows.hit) rows.hit[row] = known && rows.target_z[row] >= sums.max ? 1.0f : 0.0f;
}

template <class T>
__global__ void __launch_bounds__(threads)
    gradient_kernel(HeadRowsView rows, Logits logits, T* gradient, int64_t stride, bool packed) {
  const RowPosition at;
  if (at.row >= logits.rows) return;
  const RowGradient of(rows, at.row);
  float x[2][8];
#pragma unroll
  for (int c = 0; c < 2; ++c)
    load_chunk(x[c], logits.data + at.row * logits.stride, at.columns[c], logits.columns, logits.packed);
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int64_t target = rows.targets[at.row] - logits.first - at.columns[c] - 4 * (threadIdx.x % 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[c][i] = of.dlogit(x[c][i], target == 32 * (i / 4) + i % 4);
    }
    store_chunk(gradient + at.row * stride + logits.first, x[c], at.columns[c], logits.columns, packed);
  }
}

// Returns a . b on all lanes of a warp.
template <class T>
__device__ float dot(const T* a, const T* b, int64_t count) {
  float sum = 0;
  for (int64_t i = threadIdx.x % 32; i < count; i += 32) sum = fmaf(to_f32(a[i]), to_f32(b[i]), sum);
  return warp_sum(sum);
}

// Guesses lse before the logits are known: it is above the target's z, rarely by more than guess_margin + most_shift.
template <class T>
__global__ void __launch_bounds__(threads)
    guess_kernel(HeadRowsView rows, const T* hidden, const T* w, int64_t hidden_stride, int64_t w_stride, int count,
                 int64_t V, int64_t D) {
  const int row = static_cast<int>(blockIdx.x * warps + threadIdx.x / 32);
  if (row >= count) return;
  const int32_t target = rows.targets[row];
  const bool known = target >= 0 && target < V;
  const float z = known ? dot(hidden + row * hidden_stride, w + target * w_stride, D) * rows.inv_temperature : 0;
  if (threadIdx.x % 32 == 0) rows.guess[row] = z + guess_margin;
}

// One block per row. Exponentials under the guess become a multiple of the gradient; most rows need one corrected
// element, the target's.
template <class T>
__global__ void __launch_bounds__(threads)
    scale_kernel(HeadRowsView rows, T* gradients, int64_t stride, T* scaled, int64_t scaled_stride, const T* hidden,
                 const T* w, int64_t hidden_stride, int64_t w_stride, int64_t V, int64_t D) {
  const int row = static_cast<int>(blockIdx.x);
  const float dlogp = rows.dlogp[row], lse = rows.lse[row], shift = rows.guess[row] - lse,
              p_factor = rows.dlse(row) - dlogp;
  const float by_p = p_factor * exp_approx(shift);
  const int64_t target = rows.targets[row];
  T* gradient = gradients + row * stride;
  const T* from = hidden + row * hidden_stride;
  // good: the exponentials under the guess, times `scale`, are the gradient except at the target.
  const bool good_guess = !(fabsf(shift) > most_shift), good = good_guess && !(fabsf(p_factor) * 16 < fabsf(dlogp));
  const float scale = good ? by_p * rows.inv_temperature : 1;
  for (int64_t d = threadIdx.x; d < D; d += threads)
    scaled[row * scaled_stride + d] = from_f32<T>(to_f32(from[d]) * scale);
  if (threadIdx.x == 0) {
    rows.scale[row] = scale;
    if (good && dlogp != 0 && target >= 0 && target < V) {
      const float p =
          exp_approx(rows.target_z[row] - lse);  // near 1 the stored exponential, rounded, has too few bits of 1 - p
      gradient[target] = from_f32<T>(fmaf(p_factor, p, dlogp) / by_p);
    }
  }
  if (good) return;
  for (int64_t v = threadIdx.x / 32; v < V; v += warps) {
    // A bad row is recomputed: from its exponentials if the guess was good, else from dot products (logits are not
    // kept).
    float p = 0;
    if (dlogp != 0)
      p = good_guess ? to_f32(gradient[v]) * exp_approx(shift)
                     : exp_approx(dot(from, w + v * w_stride, D) * rows.inv_temperature - lse);
    const float dz = fmaf(p_factor, p, v == target ? dlogp : 0);
    __syncwarp();  // all lanes have read gradient[v]
    if (threadIdx.x % 32 == 0) gradient[v] = from_f32<T>(dz * rows.inv_temperature);
  }
}

template <class To, class From>
__global__ void __launch_bounds__(threads)
    scale_rows_kernel(To* y, const From* x, const float* scale, int64_t y_stride, int64_t x_stride, int64_t D) {
  const int64_t row = blockIdx.x;
  const float factor = scale[row];
  for (int64_t d = threadIdx.x; d < D; d += threads)
    y[row * y_stride + d] = from_f32<To>(to_f32(x[row * x_stride + d]) * factor);
}

unsigned warp_rows(int64_t rows) { return static_cast<unsigned>((rows + warps - 1) / warps); }

template <class T>
void launch_sums(Context& context, const HeadRows& rows, const Tensor& logits, int64_t first, T* exponentials,
                 int64_t stride, bool packed) {
  const auto kernel = rows.chunk_weighted ? sums_kernel<true, T> : sums_kernel<false, T>;
  kernel<<<grid_of(logits), threads, 0, cuda_stream(context)>>>(HeadRowsView(rows), Logits(logits, first), exponentials,
                                                                stride, packed);
  check_launch(logprob_forward);
}

}  // namespace

void head_sums(Context& context, const HeadRows& rows, Tensor logits, int64_t first) {
  launch_sums<void>(context, rows, logits, first, nullptr, 0, false);
}

void head_finish(Context& context, const HeadRows& rows, int64_t V) {
  const int64_t count = rows.targets.dim(0);
  finish_kernel<<<warp_rows(count), threads, 0, cuda_stream(context)>>>(HeadRowsView(rows), static_cast<int>(count), V);
  check_launch(logprob_forward);
}

void head_gradient(Context& context, const HeadRows& rows, Tensor gradient, Tensor logits, int64_t first) {
  with_storage(logprob_backward, gradient.dtype, [&](auto type) {
    using T = decltype(type);
    gradient_kernel<T><<<grid_of(logits), threads, 0, cuda_stream(context)>>>(
        HeadRowsView(rows), Logits(logits, first), numbers<T>(gradient), gradient.row_stride, fours<T>(gradient));
  });
  check_launch(logprob_backward);
}

void head_guess(Context& context, const HeadRows& rows, Tensor hidden, Tensor w) {
  with_storage(logprob_fused, hidden.dtype, [&](auto type) {
    using T = decltype(type);
    const int64_t count = hidden.dim(0);
    guess_kernel<T><<<warp_rows(count), threads, 0, cuda_stream(context)>>>(
        HeadRowsView(rows), numbers<const T>(hidden), numbers<const T>(w), hidden.row_stride, w.row_stride,
        static_cast<int>(count), w.dim(0), w.dim(1));
  });
  check_launch(logprob_fused);
}

void head_exponentials(Context& context, const HeadRows& rows, Tensor numbers_, Tensor logits, int64_t first) {
  with_storage(logprob_fused, numbers_.dtype, [&](auto type) {
    using T = decltype(type);
    launch_sums<T>(context, rows, logits, first, numbers<T>(numbers_), numbers_.row_stride, fours<T>(numbers_));
  });
}

void head_scale(Context& context, const HeadRows& rows, Tensor numbers_, Tensor scaled, Tensor hidden, Tensor w) {
  with_storage(logprob_fused, hidden.dtype, [&](auto type) {
    using T = decltype(type);
    scale_kernel<T><<<static_cast<unsigned>(hidden.dim(0)), threads, 0, cuda_stream(context)>>>(
        HeadRowsView(rows), numbers<T>(numbers_), numbers_.row_stride, numbers<T>(scaled), scaled.row_stride,
        numbers<const T>(hidden), numbers<const T>(w), hidden.row_stride, w.row_stride, w.dim(0), w.dim(1));
  });
  check_launch(logprob_fused);
}

void scale_rows(Context& context, Tensor y, Tensor x, Tensor scale) {
  with_storage(logprob_fused, y.dtype, [&](auto to) {
    with_storage(logprob_fused, x.dtype, [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      scale_rows_kernel<<<static_cast<unsigned>(x.dim(0)), threads, 0, cuda_stream(context)>>>(
          numbers<To>(y), numbers<const From>(x), numbers<const float>(scale), y.row_stride, x.row_stride, x.dim(1));
    });
  });
  check_launch(logprob_fused);
}

}  // namespace hone
