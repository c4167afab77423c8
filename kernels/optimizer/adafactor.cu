// Adafactor's steps on a GPU.
//
// Use       adafactor_factored, adafactor_vector, adafactor_apply; every shape and alignment.
// Tile      rows_kernel: a row per block of 256 threads. columns_kernel: 32 columns and up to 1,024 rows per block of
//           32 x 8 threads. The rest is elementwise (kernels/cuda/elementwise.cuh), 1 element per thread.
// Roles     all threads alike.
// Pipeline  none.
// Smem      static, up to 8 * 32 * 8 = 2 KB.
// Numerics  sums in f64: a thread adds its elements in ascending order, then lanes by a butterfly and warps or row
//           groups in ascending order. Shapes alone decide the orders. All else has the specification's f32 operations.
// PDL       none: weights must not be read ahead while they are written.
// Limits    none.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/optimizer/matrix_checks.h"

namespace hone {
namespace {

constexpr int threads = 256, tile = 32, groups = 8;
constexpr int64_t rows_per_block = 1024;

// The square of a clipped gradient, as the specification rounds it.
__device__ inline double squared(float grad, float clip, float eps) {
  const float g = grad * clip;
  return double{g * g + eps};
}

// Thread 0 uses the result.
__device__ double block_sum(double x) {
  __shared__ double sums[threads / 32];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();  // the sums of all warps are in shared memory
  double sum = 0;
  for (int w = 0; w < threads / 32; ++w) sum += sums[w];
  return sum;
}

__global__ void __launch_bounds__(threads)
    rows_kernel(float* row, const float* grad, const float* clip, int64_t cols, AdafactorStep step, float rest) {
  const float* from = grad + int64_t{blockIdx.x} * cols;
  double part = 0;
  for (int64_t c = threadIdx.x; c < cols; c += threads) part += squared(from[c], *clip, step.eps);
  const double sum = block_sum(part);
  if (threadIdx.x != 0) return;
  float& mean = row[blockIdx.x];
  mean = mean * step.beta2 + rest * static_cast<float>(sum / static_cast<double>(cols));
}

// partial [blocks of rows, cols]: sums over the rows of a block.
__global__ void __launch_bounds__(tile* groups)
    columns_kernel(double* partial, const float* grad, const float* clip, int64_t rows, int64_t cols, float eps) {
  __shared__ double sums[groups][tile];
  const int64_t c = int64_t{blockIdx.x} * tile + threadIdx.x, first = int64_t{blockIdx.y} * rows_per_block;
  const int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
  double part = 0;
  if (c < cols)
    for (int64_t r = first + threadIdx.y; r < last; r += groups) part += squared(grad[r * cols + c], *clip, eps);
  sums[threadIdx.y][threadIdx.x] = part;
  __syncthreads();  // the sums of all groups are in shared memory
  if (threadIdx.y != 0 || c >= cols) return;
  double sum = 0;
  for (int g = 0; g < groups; ++g) sum += sums[g][threadIdx.x];
  partial[int64_t{blockIdx.y} * cols + c] = sum;
}

struct Columns {
  float* col;
  const double* partial;
  int64_t blocks, rows, cols;
  float beta2, rest;
  template <int N>
  __device__ void run(int64_t, int64_t c) const {
    double sum = 0;
    for (int64_t b = 0; b < blocks; ++b) sum += partial[b * cols + c];
    col[c] = col[c] * beta2 + rest * static_cast<float>(sum / static_cast<double>(rows));
  }
};

__global__ void __launch_bounds__(threads) mean_kernel(float* mean, const float* row, int64_t rows) {
  double part = 0;
  for (int64_t r = threadIdx.x; r < rows; r += threads) part += row[r];
  const double sum = block_sum(part);
  if (threadIdx.x == 0) *mean = static_cast<float>(sum / static_cast<double>(rows));
}

__device__ inline float reciprocal_root(float x) { return 1 / sqrtf(x); }

struct Scale {
  float* update;
  const float *grad, *clip, *row, *col, *mean;
  int64_t cols;
  template <int N>
  __device__ void run(int64_t, int64_t i) const {
    const float of_row = reciprocal_root(row[i / cols] / *mean);
    update[i] = of_row * reciprocal_root(col[i % cols]) * (grad[i] * *clip);
  }
};

struct VectorStep {
  float *update, *square;
  const float *grad, *clip;
  AdafactorStep step;
  float rest;
  template <int N>
  __device__ void run(int64_t, int64_t i) const {
    const float g = grad[i] * *clip;
    square[i] = square[i] * step.beta2 + rest * (g * g + step.eps);
    update[i] = reciprocal_root(square[i]) * g;
  }
};

struct Apply {
  float *value, *mean;     // mean: or nullptr
  __nv_bfloat16* rounded;  // or nullptr
  const float* update;
  const double *squares, *value_squares;  // value_squares: or nullptr
  double size;
  float rate, eps, clip_threshold, beta1, weight_decay;
  __device__ float rms(const double* sum) const { return static_cast<float>(sqrt(*sum / size)); }
  template <int N>
  __device__ void run(int64_t, int64_t i) const {
    const float scale = value_squares ? rms(value_squares) : 0;
    const float own_rate = value_squares ? rate * (eps < scale ? scale : eps) : rate;
    const float ratio = rms(squares) / clip_threshold;
    float u = update[i] / (1 < ratio ? ratio : 1.0f) * own_rate;
    if (mean) {
      mean[i] = mean[i] * beta1 + (1 - beta1) * u;
      u = mean[i];
    }
    const float x = value[i] - weight_decay * own_rate * value[i] - u;
    value[i] = x;
    if (rounded) rounded[i] = __float2bfloat16_rn(x);
  }
};

template <class F>
void launch(Context& context, int64_t count, F f) {
  launch_elementwise<1>(cuda_stream(context), {1, count}, true, f);
}

int64_t blocks_of(int64_t rows) { return (rows + rows_per_block - 1) / rows_per_block; }

void factored(Context& context, const AdafactorFactored& args) {
  check(args);
  const int64_t rows = args.grad.dim(0), cols = args.grad.dim(1);
  if (rows == 0 || cols == 0) return;
  const cudaStream_t stream = cuda_stream(context);
  const auto* grad = numbers<const float>(args.grad);
  const auto* clip = numbers<const float>(args.clip);
  const float rest = static_cast<float>(1 - double{args.step.beta2});
  const ScratchScope scope(context);
  const Tensor partial = context.scratch().take(DType::f64, {blocks_of(rows), cols}),
               mean = context.scratch().take(DType::f32, {1});
  rows_kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(numbers<float>(args.row), grad, clip, cols,
                                                                   args.step, rest);
  const dim3 blocks(static_cast<unsigned>((cols + tile - 1) / tile), static_cast<unsigned>(blocks_of(rows)));
  columns_kernel<<<blocks, dim3(tile, groups), 0, stream>>>(numbers<double>(partial), grad, clip, rows, cols,
                                                            args.step.eps);
  launch(context, cols,
         Columns{numbers<float>(args.col), numbers<const double>(partial), blocks_of(rows), rows, cols, args.step.beta2,
                 rest});
  mean_kernel<<<1, threads, 0, stream>>>(numbers<float>(mean), numbers<const float>(args.row), rows);
  launch(context, rows * cols,
         Scale{numbers<float>(args.update), grad, clip, numbers<const float>(args.row), numbers<const float>(args.col),
               numbers<const float>(mean), cols});
  check_launch(adafactor_factored);
}

size_t factored_scratch(const AdafactorFactored& args) {
  return static_cast<size_t>(blocks_of(args.grad.dim(0)) * args.grad.dim(1)) * sizeof(double) + 512;
}

void vector(Context& context, const AdafactorVector& args) {
  check(args);
  VectorStep f;
  f.update = numbers<float>(args.update);
  f.square = numbers<float>(args.square);
  f.grad = numbers<const float>(args.grad);
  f.clip = numbers<const float>(args.clip);
  f.step = args.step;
  f.rest = static_cast<float>(1 - double{args.step.beta2});
  launch(context, args.grad.dim(0), f);
  check_launch(adafactor_vector);
}

void apply(Context& context, const AdafactorApply& args) {
  check(args);
  Apply f;
  f.value = numbers<float>(args.value);
  f.mean = numbers<float>(args.mean);
  f.rounded = numbers<__nv_bfloat16>(args.rounded);
  f.update = numbers<const float>(args.update);
  f.squares = numbers<const double>(args.squares);
  f.value_squares = numbers<const double>(args.value_squares);
  f.size = static_cast<double>(args.size);
  f.rate = args.rate;
  f.eps = args.eps;
  f.clip_threshold = args.clip_threshold;
  f.beta1 = args.beta1;
  f.weight_decay = args.weight_decay;
  launch(context, args.value.dim(0), f);
  check_launch(adafactor_apply);
}

[[maybe_unused]] const bool added =
    adafactor_factored.add({"rows and columns", DeviceKind::cuda, factored, 0, nullptr, factored_scratch}) &&
    adafactor_vector.add({"elementwise", DeviceKind::cuda, vector}) &&
    adafactor_apply.add({"elementwise", DeviceKind::cuda, apply});

}  // namespace
}  // namespace hone
