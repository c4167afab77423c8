// Two passes: every chunk of every row is summed by as many blocks as there are chunks, then a block a row draws. Masses are integers, so that they
// have one sum in any order, and what truncation keeps is found by radix selection over tokens that a bound from the chunks' maxima lets through.
#include "kernels/check_shape.h"
#include "kernels/sample.h"
#include "kernels/sample_draw.cuh"

namespace hone {
namespace {

constexpr int sum_threads = 256, chunks_per_block = sum_threads / 4;

struct Rows {
  const float* logits;
  int64_t stride;
  int V, chunks;
  bool packed;
  const SampleParams* params;
  float2 *sums, *raw_sums;  // [S, chunks], raw_sums where the temperature is not 1
  uint64_t* masses;         // [S, chunks], where tokens are truncated
  int32_t* ids;
  float *logp, *truncated_logp, *raw_logp;
};

__device__ float inverse_temperature_of(const SampleParams& params) { return params.temperature == 0 ? 1 : 1 / params.temperature; }

// Eight lanes take two chunks of a row.
__global__ void __launch_bounds__(sum_threads) sums_kernel(Rows rows) {
  const int64_t r = blockIdx.y;
  const int chunk = static_cast<int>(blockIdx.x * chunks_per_block + threadIdx.x / 8);
  const float inv_temperature = inverse_temperature_of(rows.params[r]);
  float x[2][8];
#pragma unroll
  for (int c = 0; c < 2; ++c)
    load_chunk(x[c], rows.logits + r * rows.stride, int64_t{chunk + c * (sum_threads / 8)} * logsumexp_cuda_chunk, rows.V, rows.packed);
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int at = chunk + c * (sum_threads / 8);
    const bool writes = at < rows.chunks && threadIdx.x % 8 == 0;
    if (inv_temperature != 1) {
      float copy[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) copy[i] = x[c][i];
      const ChunkSums raw = chunk_sums_of_lanes<false>(copy, 1);
      if (writes) rows.raw_sums[r * rows.chunks + at] = {raw.max, raw.sum};
    }
    const ChunkSums sums = chunk_sums_of_lanes<false>(x[c], inv_temperature);
    if (writes) rows.sums[r * rows.chunks + at] = {sums.max, sums.sum};
  }
}

// merge_chunks by a block; the result on all threads.
__device__ RowSums merge_row(const float2* chunks, int count) {
  __shared__ float maxima[32], slots[32 * merge_slots];
  float max = -INFINITY;
  for (int c = static_cast<int>(threadIdx.x); c < count; c += draw_threads) max = fmaxf(max, chunks[c].x);
  __syncthreads();  // a call before this one has read
  max = block_max(max, maxima);
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (warp < merge_slots) merge_slot(slots, chunks, count, warp, max);
  __syncthreads();
  return merged(slots, max);
}

__global__ void __launch_bounds__(draw_threads) draw_kernel(Rows rows) {
  __shared__ SelectMemory memory;
  const int64_t r = blockIdx.x;
  const SampleParams params = rows.params[r];
  RowLogits row;
  row.logits = rows.logits + r * rows.stride, row.sums = rows.sums + r * rows.chunks;
  row.V = rows.V, row.chunks = rows.chunks, row.inv_temperature = inverse_temperature_of(params);
  const bool scaled = row.inv_temperature != 1;
  const RowSums sums = merge_row(row.sums, row.chunks), raw_sums = scaled ? merge_row(rows.raw_sums + r * rows.chunks, row.chunks) : sums;
  const float lse = sums.value(), raw_lse = raw_sums.value();
  row.max = sums.max, row.sum = sums.sum;

  int id = -1;
  float truncated_logp = 0;
  if (isfinite(lse)) {
    if (params.temperature == 0) {
      id = draw_greedy(row, memory);
    } else if ((params.top_k > 0 && params.top_k < row.V) || params.top_p < 1 || params.min_p > 0) {
      const Truncated drawn = draw_truncated(row, params, uniform_of(params), rows.masses + r * rows.chunks, memory);
      id = drawn.id;
      truncated_logp = drawn.whole ? row.z(id) - lse : static_cast<float>(static_cast<double>(row.z(id) - row.max) - log(drawn.mass));
    } else {
      const auto mass_of = [&](int c) { return fixed(row.sums[c].y * exp_approx(row.sums[c].x - row.max)); };
      id = draw_by_mass(
               row, uniform_of(params), mass_of, [](int, float) { return true; }, memory)
               .id;
      truncated_logp = row.z(id) - lse;
    }
  }
  if (threadIdx.x != 0) return;
  rows.ids[r] = id;
  rows.logp[r] = id < 0 ? NAN : row.z(id) - lse;
  rows.truncated_logp[r] = id < 0 ? NAN : truncated_logp;
  rows.raw_logp[r] = id < 0 ? NAN : row.logits[id] - raw_lse;
}

void run(Context& context, Tensor ids, Tensor logp, Tensor truncated_logp, Tensor raw_logp, Tensor logits, Tensor params) {
  const int64_t S = logits.dim(0), V = logits.dim(1), chunks = num_logsumexp_chunks(V);
  check_shape(sample_rows, "logits", logits, {S, V});
  check_shape(sample_rows, "ids", ids, {S}, DType::i32);
  check_shape(sample_rows, "logp", logp, {S});
  check_shape(sample_rows, "truncated_logp", truncated_logp, {S});
  check_shape(sample_rows, "raw_logp", raw_logp, {S});
  HONE_CHECK(V > 0 && V < most_vocabulary, "sample_rows: the vocabulary has ", V, " tokens, wants 1 to ", most_vocabulary - 1);
  HONE_CHECK(params.dtype == DType::u8 && params.size() == S * static_cast<int64_t>(sizeof(SampleParams)), "sample_rows: params hold ", params.size(),
             " bytes, not ", S, " times ", sizeof(SampleParams));
  HONE_CHECK(reinterpret_cast<uintptr_t>(params.data) % alignof(SampleParams) == 0, "sample_rows: params are not aligned to ", alignof(SampleParams),
             " bytes");
  if (S == 0) return;
  const ScratchScope scope(context);
  Rows rows{};
  rows.logits = numbers<const float>(logits), rows.stride = logits.row_stride;
  rows.V = static_cast<int>(V), rows.chunks = static_cast<int>(chunks);
  rows.packed = logits.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(logits.data) % 16 == 0;
  rows.params = static_cast<const SampleParams*>(params.data);
  rows.sums = numbers<float2>(context.scratch().take(DType::f32, {S, 2 * chunks}));
  rows.raw_sums = numbers<float2>(context.scratch().take(DType::f32, {S, 2 * chunks}));
  rows.masses = numbers<uint64_t>(context.scratch().take(DType::f32, {S, 2 * chunks}));
  rows.ids = numbers<int32_t>(ids), rows.logp = numbers<float>(logp);
  rows.truncated_logp = numbers<float>(truncated_logp), rows.raw_logp = numbers<float>(raw_logp);
  constexpr int64_t most_rows = 65535;
  HONE_CHECK(S <= most_rows, "sample_rows: ", S, " rows, at most ", most_rows);
  sums_kernel<<<dim3(static_cast<unsigned>((chunks + chunks_per_block - 1) / chunks_per_block), static_cast<unsigned>(S)), sum_threads, 0,
                cuda_stream(context)>>>(rows);
  draw_kernel<<<static_cast<unsigned>(S), draw_threads, 0, cuda_stream(context)>>>(rows);
  check_launch(sample_rows);
}

size_t scratch(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor& logits, const Tensor&) {
  return static_cast<size_t>(logits.dim(0) * num_logsumexp_chunks(logits.dim(1))) * (2 * sizeof(float2) + sizeof(uint64_t));
}

[[maybe_unused]] const bool added = sample_rows.add({"chunks", DeviceKind::cuda, run, 0, nullptr, scratch});

}  // namespace
}  // namespace hone
