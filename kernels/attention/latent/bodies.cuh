#pragma once
// What the forward bodies of latent attention share on the host: how a call is divided into work items, its scratch
// memory, and the sum of splits. mma.cu and tiles_sm90.cu have the kernels.
#include "kernels/attention/latent/tiles.cuh"

namespace hone::attention {

// Scratch memory for the parts of splits, at most.
inline constexpr int64_t latent_part_bytes = int64_t{256} << 20;

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

// How a call is divided. In turns: thread blocks compute whole tiles. Else the splits of a tile are items of their own.
struct LatentDivision {
  int tiles, splits, tiles_per_sequence;
  bool in_turns;
  int blocks() const { return std::min(in_turns ? tiles : tiles * splits, num_sms()); }
  int64_t parts() const { return splits == 1 ? 0 : in_turns ? blocks() : int64_t{tiles} * splits; }
};

template <class P, class Args>
LatentDivision divide_latent(const Args& args) {
  LatentDivision out{};
  const int64_t heads = args.q.dim(1), sequences = args.offsets.dim(0) - 1,
                per_sequence = (most_queries(args.q, args.shape) * heads + P::rows - 1) / P::rows;
  out.tiles =
      tile_bound(static_cast<int>(args.q.dim(0)), static_cast<int>(sequences), static_cast<int>(heads), P::rows);
  if (sequences * per_sequence <= out.tiles) {  // sequences of about the same length: decode passes
    out.tiles = static_cast<int>(sequences * per_sequence);
    out.tiles_per_sequence = static_cast<int>(per_sequence);
  }
  out.splits = static_cast<int>(std::max<int64_t>(1, (most_keys_of(args) + split_keys - 1) / split_keys));
  // The time of the busiest SM, in splits. To write and merge the parts of splits takes about a sixth of their time.
  const auto rounds = [](int64_t items) { return static_cast<double>((items + num_sms() - 1) / num_sms()); };
  const int64_t items = int64_t{out.tiles} * out.splits,
                bytes = items * P::partial_floats * static_cast<int64_t>(sizeof(float));
  out.in_turns =
      out.splits == 1 || bytes > latent_part_bytes || rounds(out.tiles) * out.splits <= rounds(items) * (1 + 1.0 / 6);
  return out;
}

template <class P, class Args>
size_t latent_scratch_of(const Args& args) {
  return static_cast<size_t>(divide_latent<P>(args).parts() * (P::partial_floats + 2 * P::rows)) * sizeof(float);
}

template <class P>
LatentWork take_latent_work(Context& context, const LatentDivision& division) {
  LatentWork work{};
  work.in_turns = division.in_turns;
  work.tiles = division.tiles;
  work.splits = division.splits;
  work.tiles_per_sequence = division.tiles_per_sequence;
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

// A sequence has at most 16 query rows in the call.
template <class Args>
bool has_few_rows(const Args& args) {
  return most_queries(args.q, args.shape) * args.q.dim(1) <= 16;
}

// The kernels take these sizes, and read rows in units of 16 bytes.
template <class Args>
bool has_latent_units(const Args& args) {
  return args.q.dtype == DType::bf16 && args.q.dim(2) % 8 == 0 && args.q.dim(2) <= latent_units * 8 &&
         args.out.dim(2) % 8 == 0 && args.out.dim(2) <= 8 * latent_warp_columns && reads_in_units(args.out) &&
         reads_in_units(args.q) && reads_in_units(rows_of(args));
}

// The body of every GPU (mma.cu).
void latent_forward_mma(Context& context, const LatentAttentionForward& args);
void latent_paged_mma(Context& context, const LatentAttentionPaged& args);
size_t latent_scratch_mma(const LatentAttentionForward& args);
size_t latent_scratch_mma(const LatentAttentionPaged& args);

}  // namespace hone::attention
