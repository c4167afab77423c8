// Two passes: every chunk of every row is summed by as many blocks as there are chunks, then a block a row draws. Masses are integers, so that they
// have one sum in any order, and what truncation keeps is found by radix selection over tokens that a bound from the chunks' maxima lets through.
#include "kernels/check_shape.h"
#include "kernels/sample.h"
#include "kernels/sample_select.cuh"

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

// The lowest id of the largest logit.
__device__ int greedy(const RowLogits& row, SelectMemory& memory) {
  if (threadIdx.x == 0) memory.found = row.V;
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < row.chunks; c += draw_threads)
    if (row.sums[c].x == row.max) atomicMin(&memory.found, c);
  __syncthreads();
  const int first = memory.found * logsumexp_cuda_chunk, v = first + static_cast<int>(threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) memory.found = row.V;
  __syncthreads();
  if (threadIdx.x < logsumexp_cuda_chunk && v < row.V && row.z(v) == row.max) atomicMin(&memory.found, v);
  __syncthreads();
  return memory.found;
}

// One of all tokens: first the chunk, then the token in it.
__device__ int draw_plain(const RowLogits& row, double uniform, SelectMemory& memory) {
  const int each = (row.chunks + draw_threads - 1) / draw_threads, begin = static_cast<int>(threadIdx.x) * each;
  const int end = min(begin + each, row.chunks);
  const auto mass_of = [&](int c) { return fixed(row.sums[c].y * exp_approx(row.sums[c].x - row.max)); };
  uint64_t own = 0;
  for (int c = begin; c < end; ++c) own += mass_of(c);
  uint64_t total = 0;
  uint64_t before = block_scan(own, total, memory);
  const uint64_t drawn = part_of(total, uniform);
  if (before <= drawn && drawn < before + own) {
    int c = begin;
    for (uint64_t mass = mass_of(c); before + mass <= drawn; mass = mass_of(c)) before += mass, ++c;
    memory.found = c, memory.rest = drawn - before;
  }
  __syncthreads();
  const int first = memory.found * logsumexp_cuda_chunk, v = first + static_cast<int>(threadIdx.x);
  const uint64_t rest = memory.rest;
  const bool inside = threadIdx.x < logsumexp_cuda_chunk && v < row.V;
  const float weight = inside ? row.weight(row.z(v)) : 0;
  __syncthreads();
  if (threadIdx.x == 0) memory.found = 0;
  before = block_scan(fixed(weight), total, memory);
  // The chunk's mass was rounded: what lies behind its last token goes to that token.
  if (weight > 0 && before <= rest) atomicMax(&memory.found, v);
  __syncthreads();
  return memory.found;
}

__global__ void __launch_bounds__(draw_threads) draw_kernel(Rows rows) {
  __shared__ SelectMemory memory;
  __shared__ RowSums shared_sums[2];
  const int64_t r = blockIdx.x;
  const SampleParams params = rows.params[r];
  RowLogits row;
  row.logits = rows.logits + r * rows.stride, row.sums = rows.sums + r * rows.chunks;
  row.V = rows.V, row.chunks = rows.chunks, row.inv_temperature = inverse_temperature_of(params);
  const bool scaled = row.inv_temperature != 1;
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (warp < (scaled ? 2 : 1)) {
    const RowSums sums = merge_chunks(warp == 0 ? row.sums : rows.raw_sums + r * rows.chunks, nullptr, rows.chunks);
    if (threadIdx.x % 32 == 0) shared_sums[warp] = sums;
  }
  __syncthreads();
  const float lse = shared_sums[0].value(), raw_lse = shared_sums[scaled ? 1 : 0].value();
  row.max = shared_sums[0].max, row.sum = shared_sums[0].sum;

  int id = -1;
  float truncated_logp = 0;
  if (isfinite(lse)) {
    const Philox4 words = philox(params.seed, params.stream, params.position);
    const double uniform = static_cast<double>(((uint64_t{words.word[1]} << 32) | words.word[0]) >> 11) * 0x1p-53;
    if (params.temperature == 0) {
      id = greedy(row, memory);
    } else if ((params.top_k > 0 && params.top_k < row.V) || params.top_p < 1 || params.min_p > 0) {
      const Truncated drawn = draw_truncated(row, params, uniform, memory);
      id = drawn.id;
      truncated_logp = drawn.whole ? row.z(id) - lse : static_cast<float>(static_cast<double>(row.z(id) - row.max) - log(drawn.mass));
    } else {
      id = draw_plain(row, uniform, memory);
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
  rows.ids = numbers<int32_t>(ids), rows.logp = numbers<float>(logp);
  rows.truncated_logp = numbers<float>(truncated_logp), rows.raw_logp = numbers<float>(raw_logp);
  constexpr int64_t most_rows = 65535;
  HONE_CHECK(S <= most_rows, "sample_rows: ", S, " rows, at most ", most_rows);
  sums_kernel<<<dim3(static_cast<unsigned>((chunks + chunks_per_block - 1) / chunks_per_block), static_cast<unsigned>(S)), sum_threads, 0,
                cuda_stream(context)>>>(rows);
  draw_kernel<<<static_cast<unsigned>(S), draw_threads, 0, cuda_stream(context)>>>(rows);
  check_launch(sample_rows);
}

[[maybe_unused]] const bool added = sample_rows.add({"chunks", DeviceKind::cuda, run});

}  // namespace
}  // namespace hone
