#pragma once
// The host side of the forward bodies of latent attention (packed and paged), for a set of plans: mma.cu and
// tiles_sm90.cu have one each. Plans::with(limits, few_rows, body) calls body(P{}) with the plan of the kernel.
#include "kernels/attention/latent/tiles.cuh"

namespace hone::attention {

// Scratch memory for the parts of splits, at most.
inline constexpr int64_t latent_part_bytes = int64_t{256} << 20;

// How a call is divided. at_once: the splits of a tile are computed by different thread blocks, because there are fewer
// tiles than SMs and the parts fit the scratch memory. Else each block computes whole tiles in turns.
struct LatentDivision {
  int tiles, splits;
  int blocks;  // thread blocks that take tiles in turns
  bool at_once;
  int64_t parts() const { return at_once ? int64_t{tiles} * splits : blocks; }
};

template <class P>
LatentDivision divide_latent(int64_t tokens, int64_t sequences, int64_t heads, int64_t most_keys) {
  LatentDivision out{};
  out.tiles = tile_bound(static_cast<int>(tokens), static_cast<int>(sequences), static_cast<int>(heads), P::rows);
  out.splits = static_cast<int>(std::max<int64_t>(1, (most_keys + split_keys - 1) / split_keys));
  out.blocks = std::min(out.tiles, num_sms());
  const int64_t part_bytes = P::partial_floats * static_cast<int64_t>(sizeof(float));
  out.at_once = out.splits > 1 && out.tiles < num_sms() && out.tiles * part_bytes * out.splits <= latent_part_bytes;
  return out;
}

template <class P>
void launch_latent(Context& context, const LatentCall<Bf16>& call, int64_t most_keys) {
  const ScratchScope scope(context);
  const cudaStream_t stream = cuda_stream(context);
  const LatentDivision division = divide_latent<P>(call.of.tokens, call.of.sequences, call.of.group, most_keys);
  LatentWork work{};
  work.tiles = division.tiles;
  work.splits = division.splits;
  if (work.splits > 1)
    work.totals = numbers<float>(context.scratch().take(DType::f32, {division.parts(), P::partial_floats}));
  if (!division.at_once) {
    const Tensor claimed = context.scratch().take(DType::i32, {1});
    context.zero(claimed);
    work.claimed = numbers<int>(claimed);
    allow_shared_memory(latent_turns_kernel<P>, P::bytes);
    latent_turns_kernel<P><<<static_cast<unsigned>(division.blocks), P::threads, P::bytes, stream>>>(call, work);
    return;
  }
  work.stats = numbers<float>(context.scratch().take(DType::f32, {division.parts(), 2 * P::rows}));
  allow_shared_memory(latent_split_kernel<P>, P::bytes);
  const dim3 grid(static_cast<unsigned>(work.tiles), static_cast<unsigned>(work.splits));
  latent_split_kernel<P><<<grid, P::threads, P::bytes, stream>>>(call, work);
  allow_shared_memory(latent_sum_kernel<P>, P::bytes);
  latent_sum_kernel<P><<<static_cast<unsigned>(work.tiles), P::threads, P::bytes, stream>>>(call, work);
}

// The tokens that a sequence has in the call, at most.
inline int64_t most_queries(const Tensor& q, const AttentionShape& shape) {
  return shape.max_length > 0 ? std::min(shape.max_length, q.dim(0)) : q.dim(0);
}
inline bool has_few_rows(const Tensor& q, const AttentionShape& shape) {
  return most_queries(q, shape) * q.dim(1) <= 16;
}

template <class P>
size_t latent_scratch_of(const Tensor& q, const Tensor& offsets, int64_t most_keys) {
  const LatentDivision division = divide_latent<P>(q.dim(0), offsets.dim(0) - 1, q.dim(1), most_keys);
  if (division.splits == 1) return sizeof(int);
  return sizeof(int) + static_cast<size_t>(division.parts() * (P::partial_floats + 2 * P::rows)) * sizeof(float);
}

inline int64_t most_keys_of(const LatentAttentionPaged& args) {
  return args.cache.block_size * args.cache.block_table.dim(1);
}

inline void check_latent_alignment(const OpBase& op, const Tensor& out, const Tensor& q, const Tensor& rows) {
  HONE_CHECK(reads_in_units(out) && reads_in_units(q) && reads_in_units(rows), op.name(),
             ": the rows of out, q and the latents must be 16-byte aligned");
}

inline bool has_latent_units(const Tensor& out, const Tensor& q) {
  return q.dtype == DType::bf16 && q.dim(2) % 8 == 0 && q.dim(2) <= latent_units * 8 && out.dim(2) % 8 == 0 &&
         out.dim(2) <= 8 * latent_warp_columns;
}

template <class Plans>
void run_latent(Context& context, const OpBase& op, const LatentCall<Bf16>& call, bool few_rows, int64_t most_keys) {
  if (call.of.tokens == 0) return;
  Plans::with(device_limits(), few_rows, [&](auto plan) { launch_latent<decltype(plan)>(context, call, most_keys); });
  check_launch(op);
}

template <class Plans>
void run_latent_forward(Context& context, const LatentAttentionForward& args) {
  const LatentCall<Bf16> call = latent_call_of<Bf16>(args);
  check_latent_alignment(latent_attention_forward, args.out, args.q, args.rows);
  run_latent<Plans>(context, latent_attention_forward, call, has_few_rows(args.q, args.shape),
                    most_queries(args.q, args.shape));
}
template <class Plans>
size_t latent_forward_scratch(const LatentAttentionForward& args) {
  size_t bytes = 0;
  Plans::with(device_limits(), has_few_rows(args.q, args.shape), [&](auto plan) {
    bytes = latent_scratch_of<decltype(plan)>(args.q, args.offsets, most_queries(args.q, args.shape));
  });
  return bytes;
}

template <class Plans>
void run_latent_paged(Context& context, const LatentAttentionPaged& args) {
  const LatentCall<Bf16> call = latent_call_of<Bf16>(args);
  check_latent_alignment(latent_attention_paged, args.out, args.q, args.cache.rows);
  run_latent<Plans>(context, latent_attention_paged, call, has_few_rows(args.q, args.shape), most_keys_of(args));
}
template <class Plans>
size_t latent_paged_scratch(const LatentAttentionPaged& args) {
  size_t bytes = 0;
  Plans::with(device_limits(), has_few_rows(args.q, args.shape),
              [&](auto plan) { bytes = latent_scratch_of<decltype(plan)>(args.q, args.offsets, most_keys_of(args)); });
  return bytes;
}

}  // namespace hone::attention
