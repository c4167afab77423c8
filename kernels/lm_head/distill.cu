// The lm_head of distillation on a GPU, in blocks of rows: f32 logits of student and teacher from two GEMMs, one pass
// of a kernel over them, and the gradient of the student's logits as an operand of two GEMMs. With top_ids there are no
// logits of the teacher. A soft-cap is an op on the logits after their GEMM, and one on their gradient.
//
// Use       any dtype and alignment of hidden and w.
// Tile      row_kernel, top_kernel, add_kernel: one row per block.
// Roles     256 threads share a row; thread i takes the columns i, i + 256, ... In top_kernel thread i also owns the
//           teacher's i-th token, so K is at most 256.
// Pipeline  none: the row is read once for each of four sums (top_kernel: three), from L2 if it fits.
// Smem      32 floats of the block's reductions.
// Numerics  f32; sums of a thread in ascending order, then block_sum(). A row's bits do not depend on the other rows.
// PDL       none.
// Limits    none.
#include "kernels/cuda/cuda.cuh"
#include "kernels/elementwise/softcap.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lm_head/distill.h"

namespace hone {
namespace {

constexpr int threads = 256;
constexpr int64_t most_logits = int64_t{1} << 25;  // f32 logits of a block of rows, of each model
constexpr int64_t column_multiple = 64;            // the GEMMs read 16 bytes at a time

// One row: p and q are the probabilities of student and teacher, m is their mixture.
struct DivergenceRow {
  const float *student, *teacher;
  float factor, beta, student_lse, teacher_lse;

  __device__ float log_p(int64_t v) const { return student[v] * factor - student_lse; }
  __device__ float log_q(int64_t v) const { return teacher[v] * factor - teacher_lse; }
  __device__ float log_mixture(int64_t v) const { return logf((1 - beta) * expf(log_p(v)) + beta * expf(log_q(v))); }
  static __device__ float weighted(float log_p, float log_m) {
    const float p = expf(log_p);
    return p == 0 ? 0 : p * (log_p - log_m);
  }
  __device__ float student_term(int64_t v) const { return weighted(log_p(v), beta == 1 ? log_q(v) : log_mixture(v)); }
  __device__ float term(int64_t v) const {
    if (beta == 0) return weighted(log_q(v), log_p(v));
    if (beta == 1) return weighted(log_p(v), log_q(v));
    const float log_m = log_mixture(v);
    return beta * weighted(log_q(v), log_m) + (1 - beta) * weighted(log_p(v), log_m);
  }
  __device__ float derivative(int64_t v, float student_sum) const {
    if (beta == 0) return expf(log_p(v)) - expf(log_q(v));
    const float scale = beta == 1 ? 1 : 1 - beta;
    return scale * (student_term(v) - expf(log_p(v)) * student_sum);
  }
};

// -inf if no logit is above it.
__device__ float row_lse(const float* logits, int64_t V, float factor, float* shared) {
  float max = -INFINITY, sum = 0;
  for (int64_t v = threadIdx.x; v < V; v += threads) max = fmaxf(max, logits[v] * factor);
  max = block_max(max, shared);
  __syncthreads();  // all threads have read the reduction's memory
  if (max == -INFINITY) return max;
  for (int64_t v = threadIdx.x; v < V; v += threads) sum += expf(logits[v] * factor - max);
  sum = block_sum(sum, shared);
  __syncthreads();
  return max + logf(sum);
}

// gradient [rows, stride] in the GEMMs' dtype; null: only the divergence. The columns past V become 0.
template <class T>
__global__ void __launch_bounds__(threads)
    row_kernel(const float* student, const float* teacher, int64_t logits_stride, int64_t V, float factor, float beta,
               const float* weight, float* divergence, T* gradient, int64_t stride) {
  __shared__ float shared[32];
  const int64_t r = blockIdx.x;
  DivergenceRow row{student + r * logits_stride, teacher + r * logits_stride, factor, beta, 0, 0};
  row.student_lse = row_lse(row.student, V, factor, shared);
  row.teacher_lse = row_lse(row.teacher, V, factor, shared);
  float sum = 0, student_sum = 0;
  for (int64_t v = threadIdx.x; v < V; v += threads) {
    sum += row.term(v);
    if (beta != 0) student_sum += row.student_term(v);
  }
  sum = block_sum(sum, shared);
  __syncthreads();
  student_sum = block_sum(student_sum, shared);
  if (threadIdx.x == 0) divergence[r] = sum;
  if (!gradient) return;
  const float scale = weight[r] * factor;
  for (int64_t v = threadIdx.x; v < stride; v += threads)
    gradient[r * stride + v] = from_f32<T>(v < V ? scale * row.derivative(v, student_sum) : 0);
}

__device__ float sum_and_wait(float value, float* shared) {
  value = block_sum(value, shared);
  __syncthreads();  // all threads have read the reduction's memory
  return value;
}

__device__ float log_add(float a, float b) {
  const float high = fmaxf(a, b), low = fminf(a, b);
  return low == -INFINITY ? high : high + log1pf(expf(low - high));
}

// The rows of a call with the teacher's most likely tokens, from the first row of a block of rows on.
struct TopRows {
  const int32_t* ids;
  const float* logp;
  int64_t ids_stride, logp_stride, count;
  TopRest rest;
};

// distill_top_row(). The logits of the teacher's tokens are -inf in `student` meanwhile, so that sums over the row are
// those of the other tokens. After a gradient they are what they were: a soft-cap's derivative reads them.
template <class T>
__global__ void __launch_bounds__(threads)
    top_kernel(float* student, TopRows top, int64_t logits_stride, int64_t V, float factor, const float* weight,
               float* divergence, T* gradient, int64_t stride) {
  __shared__ float shared[32];
  const int64_t r = blockIdx.x;
  float* const logits = student + r * logits_stride;

  // The teacher's tokens: thread i has the i-th.
  int32_t id = -1;
  if (threadIdx.x < top.count) id = top.ids[r * top.ids_stride + threadIdx.x];
  const bool named = id >= 0 && id < V;
  float q = named ? expf(top.logp[r * top.logp_stride + threadIdx.x]) : 0;
  const float own = named ? logits[id] : -INFINITY, z = own * factor;
  __syncthreads();  // all threads have read their logit
  if (named) logits[id] = -INFINITY;
  float sum_q = sum_and_wait(q, shared);
  const float count = sum_and_wait(named ? 1.0f : 0.0f, shared);
  const bool known = sum_q > 0;
  if (top.rest == TopRest::renormalize && known) {
    q /= sum_q;
    sum_q = 1;
  }
  const bool has_rest = known && top.rest == TopRest::bucket && count < static_cast<float>(V);
  const float rest_q = has_rest ? fmaxf(0, 1 - sum_q) : 0, all_q = sum_q + rest_q;

  // The student's log-sum-exp over the other tokens, and over all.
  const float rest_lse = row_lse(logits, V, factor, shared);
  float max = block_max(z, shared);
  __syncthreads();
  const float top_sum = sum_and_wait(named ? expf(z - max) : 0, shared);
  const float lse = count > 0 ? log_add(rest_lse, max + logf(top_sum)) : rest_lse;
  float sum = sum_and_wait(q > 0 ? q * (logf(q) - (z - lse)) : 0, shared);
  if (rest_q > 0) sum += rest_q * (logf(rest_q) - (rest_lse - lse));
  if (threadIdx.x == 0) divergence[r] = sum;
  if (!gradient) return;

  const float scale = known ? weight[r] * factor : 0;
  for (int64_t v = threadIdx.x; v < stride; v += threads) {
    float value = 0;
    if (v < V && logits[v] != -INFINITY) {
      const float other = logits[v] * factor;
      value = all_q * expf(other - lse) - (rest_q > 0 ? rest_q * expf(other - rest_lse) : 0);
    }
    gradient[r * stride + v] = from_f32<T>(scale * value);
  }
  __syncthreads();  // all columns are written; those of the teacher's tokens are written again
  if (!named) return;
  gradient[r * stride + id] = from_f32<T>(scale * (all_q * expf(z - lse) - q));
  logits[id] = own;
}

template <class To, class From>
__global__ void __launch_bounds__(threads)
    add_kernel(To* y, const From* x, int64_t y_stride, int64_t x_stride, int64_t D) {
  const int64_t row = blockIdx.x;
  for (int64_t d = threadIdx.x; d < D; d += threads)
    y[row * y_stride + d] = from_f32<To>(to_f32(y[row * y_stride + d]) + to_f32(x[row * x_stride + d]));
}

int64_t padded(int64_t V) { return (V + column_multiple - 1) / column_multiple * column_multiple; }
int64_t rows_at_once(const Distill& args) {
  return std::min(args.hidden.dim(0), std::max<int64_t>(1, most_logits / padded(args.w.dim(0))));
}

void add_rows(Context& context, Tensor y, Tensor x) {
  with_storage(distill, y.dtype, [&](auto to) {
    with_storage(distill, x.dtype, [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      add_kernel<<<static_cast<unsigned>(x.dim(0)), threads, 0, cuda_stream(context)>>>(
          numbers<To>(y), numbers<const From>(x), y.row_stride, x.row_stride, x.dim(1));
    });
  });
  check_launch(distill);
}

// y = x . w^T, soft-capped unless softcap is 0.
void logits_of(Context& context, Tensor y, Tensor x, Tensor w, float softcap) {
  GemmForward call{};
  call.y = y;
  call.x = x;
  call.w = w;
  gemm_forward(context, call);
  if (softcap > 0) softcap_forward(context, y, softcap);
}

// The scratch memory of a block of rows. `teacher` is empty with top_ids, the gradients without dhidden.
struct RowBlock {
  Tensor student, teacher, gradients, dhidden;
};

// Computes divergences and the gradient of the logits of rows [first, first + count).
void run_rows(Context& context, const Distill& args, const RowBlock& block, int64_t first, int64_t count) {
  const int64_t V = args.w.dim(0), width = padded(V);
  logits_of(context, block.student.rows(0, count).columns(0, V), args.hidden.rows(first, count), args.w, args.softcap);
  if (args.teacher_w)
    logits_of(context, block.teacher.rows(0, count).columns(0, V), args.teacher_hidden.rows(first, count),
              args.teacher_w, args.teacher_softcap);
  const auto factor = static_cast<float>(args.kind.inv_temperature), beta = static_cast<float>(args.kind.beta);
  const float* const weight = numbers<const float>(args.weight) + first;
  float* const divergence = numbers<float>(args.divergence) + first;
  with_storage(distill, args.hidden.dtype, [&](auto type) {
    using T = decltype(type);
    T* const gradient = args.dhidden ? numbers<T>(block.gradients) : nullptr;
    const auto grid = static_cast<unsigned>(count);
    if (args.teacher_w) {
      row_kernel<T><<<grid, threads, 0, cuda_stream(context)>>>(numbers<const float>(block.student),
                                                                numbers<const float>(block.teacher), width, V, factor,
                                                                beta, weight, divergence, gradient, width);
    } else {
      const Tensor ids = args.top_ids.rows(first, count), logp = args.top_logp.rows(first, count);
      const TopRows top{ids.ptr<int32_t>(), logp.ptr<float>(), ids.row_stride, logp.row_stride, ids.dim(1), args.rest};
      top_kernel<T><<<grid, threads, 0, cuda_stream(context)>>>(numbers<float>(block.student), top, width, V, factor,
                                                                weight, divergence, gradient, width);
    }
  });
  check_launch(distill);
}

void row_blocks(Context& context, const Distill& args) {
  const DType dtype = args.hidden.dtype;
  check_distill(args, dtype);
  HONE_CHECK(dtype == DType::f32 || dtype == DType::bf16, "op distill: dtype is ", name_of(dtype),
             "; it must be f32 or bf16 on cuda");
  const int64_t R = args.hidden.dim(0), V = args.w.dim(0), D = args.w.dim(1);
  if (R == 0) return;
  const ScratchScope scope(context);
  Arena& arena = context.scratch();
  const int64_t step = rows_at_once(args), width = padded(V);
  RowBlock block;
  block.student = arena.take(DType::f32, {step, width});
  if (args.teacher_w) block.teacher = arena.take(DType::f32, {step, width});
  if (args.dhidden) {
    block.gradients = arena.take(dtype, {step, width});
    block.dhidden = arena.take(dtype, {step, D});
  }
  for (int64_t first = 0; first < R; first += step) {
    const int64_t count = std::min(step, R - first);
    run_rows(context, args, block, first, count);
    if (!args.dhidden) continue;
    const Tensor gradient = block.gradients.rows(0, count).columns(0, V), part = block.dhidden.rows(0, count);
    if (args.softcap > 0) softcap_backward(context, gradient, block.student.rows(0, count).columns(0, V), args.softcap);
    gemm_backward_input(context, part, gradient, args.w);
    add_rows(context, args.dhidden.rows(first, count), part);
    if (args.dw) gemm_backward_weight(context, args.dw, {}, gradient, args.hidden.rows(first, count));
  }
}

size_t scratch_bytes(const Distill& args) {
  if (args.hidden.dim(0) == 0) return 0;
  const auto step = static_cast<size_t>(rows_at_once(args)), width = static_cast<size_t>(padded(args.w.dim(0)));
  const size_t element = size_of(args.hidden.dtype), D = static_cast<size_t>(args.w.dim(1));
  const size_t gradients = args.dhidden ? step * (width + D) * element : 0;
  constexpr size_t most_workspace = size_t{64} << 20;  // of the split GEMMs
  const size_t logits = (args.teacher_w ? 8 : 4) * step * width;
  return logits + gradients + std::min(most_workspace, 16 * step * D);
}

[[maybe_unused]] const bool added =
    distill.add({"row_blocks", DeviceKind::cuda, row_blocks, 0, nullptr, scratch_bytes});

}  // namespace
}  // namespace hone
