#pragma once
// What the forward bodies of latent attention share on the host: how a call is divided into work items, its scratch
// memory, and the sum of splits. mma.cu and tiles_sm90.cu have the kernels.
#include "kernels/attention/latent/tiles.cuh"

namespace hone::attention {

// Scratch memory for the parts of splits, at most.
inline constexpr int64_t latent_part_bytes = int64_t{256} << 20;

// How a call is divided. In turns: thread blocks compute whole tiles. Else the splits of a tile are items of their own.
struct LatentDivision {
  int tiles, splits;
  bool in_turns;
  int blocks() const { return std::min(in_turns ? tiles : tiles * splits, num_sms()); }
  int64_t parts() const { return splits == 1 ? 0 : in_turns ? blocks() : int64_t{tiles} * splits; }
};

template <class P>
LatentDivision divide_latent(int64_t tokens, int64_t sequences, int64_t heads, int64_t most_keys) {
  LatentDivision out{};
  out.tiles = tile_bound(static_cast<int>(tokens), static_cast<int>(sequences), static_cast<int>(heads), P::rows);
  out.splits = static_cast<int>(std::max<int64_t>(1, (most_keys + split_keys - 1) / split_keys));
  // Times in splits per SM. To write and merge the parts of splits takes about a sixth of their time.
  const auto rounds = [](int64_t items) { return static_cast<double>((items + num_sms() - 1) / num_sms()); };
  const int64_t items = int64_t{out.tiles} * out.splits,
                bytes = items * P::partial_floats * static_cast<int64_t>(sizeof(float));
  out.in_turns =
      out.splits == 1 || bytes > latent_part_bytes || rounds(out.tiles) * out.splits <= rounds(items) * (1 + 1.0 / 6);
  return out;
}

template <class P>
size_t latent_scratch_of(const Tensor& q, const Tensor& offsets, int64_t most_keys) {
  const LatentDivision division = divide_latent<P>(q.dim(0), offsets.dim(0) - 1, q.dim(1), most_keys);
  return static_cast<size_t>(division.parts() * (P::partial_floats + 2 * P::rows)) * sizeof(float);
}

template <class P>
LatentWork take_latent_work(Context& context, const LatentDivision& division) {
  LatentWork work{};
  work.in_turns = division.in_turns;
  work.tiles = division.tiles;
  work.splits = division.splits;
  if (division.parts() == 0) return work;
  work.totals = numbers<float>(context.scratch().take(DType::f32, {division.parts(), P::partial_floats}));
  if (!work.in_turns) work.stats = numbers<float>(context.scratch().take(DType::f32, {division.parts(), 2 * P::rows}));
  return work;
}

template <class P>
void launch_latent_sum(Context& context, const LatentCall<Bf16>& call, const LatentWork& work) {
  const dim3 grid(static_cast<unsigned>(work.tiles), static_cast<unsigned>(P::sum_fragments * P::sum_tiles));
  latent_sum_kernel<P><<<grid, P::threads, 0, cuda_stream(context)>>>(call, work);
}

// The tokens that a sequence has in the call, at most.
inline int64_t most_queries(const Tensor& q, const AttentionShape& shape) {
  return shape.max_length > 0 ? std::min(shape.max_length, q.dim(0)) : q.dim(0);
}
// The keys of a sequence, at most.
inline int64_t most_keys_of(const LatentAttentionForward& args) { return most_queries(args.q, args.shape); }
inline int64_t most_keys_of(const LatentAttentionPaged& args) {
  return args.cache.block_size * args.cache.block_table.dim(1);
}
inline const Tensor& rows_of(const LatentAttentionForward& args) { return args.rows; }
inline const Tensor& rows_of(const LatentAttentionPaged& args) { return args.cache.rows; }

// A sequence has at most 16 query rows in the call.
template <class Args>
bool has_few_rows(const Args& args) {
  return most_queries(args.q, args.shape) * args.q.dim(1) <= 16;
}

template <class Args>
bool has_latent_units(const Args& args) {
  return args.q.dtype == DType::bf16 && args.q.dim(2) % 8 == 0 && args.q.dim(2) <= latent_units * 8 &&
         args.out.dim(2) % 8 == 0 && args.out.dim(2) <= 8 * latent_warp_columns;
}

// The call with checked shapes and alignment.
template <class Args>
LatentCall<Bf16> aligned_latent_call(const OpBase& op, const Args& args) {
  const LatentCall<Bf16> call = latent_call_of<Bf16>(args);
  HONE_CHECK(reads_in_units(args.out) && reads_in_units(args.q) && reads_in_units(rows_of(args)), op.name(),
             ": the rows of out, q and the latents must be 16-byte aligned");
  return call;
}

// The body of every GPU (mma.cu).
void latent_forward_mma(Context& context, const LatentAttentionForward& args);
void latent_paged_mma(Context& context, const LatentAttentionPaged& args);
size_t latent_scratch_mma(const LatentAttentionForward& args);
size_t latent_scratch_mma(const LatentAttentionPaged& args);

}  // namespace hone::attention
