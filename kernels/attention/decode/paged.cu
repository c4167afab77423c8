// attention_paged for bf16: what its bodies share. They differ in the kernel for decoded sequences (all have the same
// bits); the merging of splits is here.
//
// Use       merge_kernel: decoded sequences of calls whose block table holds more than 1024 keys.
// Tile      one row (query and head) per thread block. Grid: KV heads x sequences x rows.
// Roles     two columns per thread; all threads alike.
// Pipeline  none: splits are read one after the other, loop unrolled by 4.
// Smem      none.
// Numerics  splits in ascending order by merge_factors() and merged() (numerics.cuh); one rounding to bf16.
// PDL       triggers dependents, then waits, both at the start.
// Limits    attention_paged: bf16, head dimension a multiple of 8 up to 256, fewer than 65,536 sequences, rows 16-byte
//           aligned.
#include "kernels/attention/decode/decode.cuh"

namespace hone::attention {
namespace {

// Merges the splits of one row in ascending order.
__global__ void merge_kernel(const __grid_constant__ AttentionCall<Bf16> call, const SplitPartials partials) {
  hopper::griddep_launch_dependents();
  hopper::griddep_wait();
  const int kv_head = static_cast<int>(blockIdx.x), s = static_cast<int>(blockIdx.y),
            row = static_cast<int>(blockIdx.z);
  const int column = 2 * static_cast<int>(threadIdx.x);
  const Sequence sequence = sequence_of(call, s);
  if (row >= sequence.tokens * call.group || !decodes(sequence.tokens, call.group) || column >= call.dim) return;
  const int token = row / call.group, position = sequence.position + token;
  const int begin = first_seen(position, call.window) / split_keys, end = position / split_keys + 1;
  const int64_t place = ((int64_t{s} * call.kv_heads + kv_head) * partials.rows + row) * partials.splits;
  const auto o_of = [&](int split) {
    return *reinterpret_cast<const float2*>(partials.o + (place + split) * call.dim + column);
  };
  float m = partials.m[place + begin], l = partials.l[place + begin];
  float2 o = o_of(begin);
#pragma unroll 4
  for (int split = begin + 1; split < end; ++split) {
    const MergeFactors factors = merge_factors(m, partials.m[place + split], call.c);
    const float2 part = o_of(split);
    m = factors.m;
    l = merged(l, partials.l[place + split], factors);
    o = {merged(o.x, part.x, factors), merged(o.y, part.y, factors)};
  }
  const int head = kv_head * call.group + row - token * call.group;
  const float inverse = end_of_row(call, head, m, l).inverse;
  Bf16* const out = call.out + int64_t{sequence.begin + token} * call.out_stride + head * call.dim;
  *reinterpret_cast<uint32_t*>(out + column) = pack_bf16(o.x * inverse, o.y * inverse);
}

}  // namespace

void run_attention_paged(Context& context, const AttentionPaged& args, LaunchDecode launch) {
  const AttentionCall<Bf16> call = paged_call_of<Bf16>(attention_paged, args);
  HONE_CHECK(reads_in_units(args.q) && reads_in_units(args.cache.k) && reads_in_units(args.cache.v) &&
                 reads_in_units(args.out),
             "attention_paged: the rows of q, k, v and out must be 16-byte aligned");
  HONE_CHECK(call.sequences < 65536, "attention_paged: ", call.sequences,
             " sequences in one call; the maximum is 65535");
  if (call.tokens == 0) return;
  const int tokens = most_tokens(call, args.shape), rows = std::min(decoded_rows(call.group), tokens * call.group),
            keys = static_cast<int>(args.cache.block_table.dim(1)) * call.block_size,
            splits = std::max((keys + split_keys - 1) / split_keys, 1);
  const int64_t pairs = int64_t{call.sequences} * call.kv_heads;
  const ScratchScope scope(context);
  SplitPartials partials{nullptr, nullptr, nullptr, rows, splits, keys, args.cache.prefetchable};
  if (splits > 1) {
    partials.o = numbers<float>(context.scratch().take(DType::f32, {pairs * rows * splits, call.dim}));
    partials.m = numbers<float>(context.scratch().take(DType::f32, {pairs * rows * splits}));
    partials.l = numbers<float>(context.scratch().take(DType::f32, {pairs * rows * splits}));
  }
  const cudaStream_t stream = cuda_stream(context);
  launch(stream, call, partials, args.cache, num_key_octets(partials, call, tokens));
  if (splits > 1) {
    const dim3 grid(static_cast<unsigned>(call.kv_heads), static_cast<unsigned>(call.sequences),
                    static_cast<unsigned>(rows));
    launch_pdl(stream, merge_kernel, grid, (call.dim / 2 + 31) / 32 * 32, 0, 1, call, partials);
  }
  if (!decodes(tokens, call.group)) launch_tiles(context, call);
  check_launch(attention_paged);
}

}  // namespace hone::attention
