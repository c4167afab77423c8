#pragma once
// Plans and launches of the persistent kernel of a layer (persistent.cuh) on the host. Only .cu files include it.
#include "kernels/decoder_layer/internal.h"
#include "kernels/decoder_layer/persistent.cuh"

namespace hone {

// A GEMM of a layer with M rows.
template <class Output>
PersistentGemm persistent_gemm(const Tensor& x, const RmsNormWeights& norm, const GemmWeights& product,
                               const Output& output, int M) {
  PersistentGemm out{};
  out.w = numbers<const __nv_bfloat16>(product.w);
  out.x = numbers<const __nv_bfloat16>(x);
  out.w_stride = product.w.row_stride;
  out.x_stride = x.row_stride;
  out.row_ranges = row_ranges_of(output);
  if (norm.weight) {
    out.norm.weight = numbers<const __nv_bfloat16>(norm.weight);
    out.norm.eps = norm.eps;
    out.norm.shape = RmsNormRows::shape(product.w.dim(1), 8);
  }
  out.N = static_cast<int>(product.w.dim(0));
  out.K = static_cast<int>(product.w.dim(1));
  out.n_tiles = output.template tiles<8>();
  out.chunks = (out.K + static_cast<int>(gemm_cuda_chunk) - 1) / static_cast<int>(gemm_cuda_chunk);
  out.x_rows = M;
  out.row_chunks = out.chunks;
  return out;
}

inline ResidualEpilogue residual_epilogue(const Tensor& y, const GemmWeights& product, const Tensor& residual) {
  return {numbers<__nv_bfloat16>(y),
          numbers<const __nv_bfloat16>(product.bias),
          numbers<const __nv_bfloat16>(residual),
          y.row_stride,
          residual.row_stride,
          static_cast<int>(product.w.dim(0))};
}

// A GEMM with its sizes alone: enough to plan a launch.
inline PersistentGemm planned_gemm(int64_t N, int64_t K, int M) {
  PersistentGemm out{};
  out.N = static_cast<int>(N);
  out.K = static_cast<int>(K);
  out.n_tiles = static_cast<int>((N + 15) / 16);
  out.chunks = static_cast<int>((K + gemm_cuda_chunk - 1) / gemm_cuda_chunk);
  out.x_rows = M;
  out.row_chunks = out.chunks;
  return out;
}

// The last GEMM of a layer: q, k and v of the next one, if there is one. Its epilogue applies RoPE and writes the
// cache. Where q and k have norms, or RoPE is not that of the epilogue, it writes rows that qkv_forward finishes.
struct NextProjection {
  QkvRopeCache args;
  bool in_chain = false, rotates = false;
  QkvRopeEpilogue heads{};

  NextProjection(const OpBase& op, const Tensor& x, const QkvProjection& next) {
    args.x = x;
    args.to = next;
    if (!next.q || !next.norm.weight) return;
    rotates = fuses_heads(args);
    in_chain = rotates || fuses(x, next.norm, next.qkv);
    if (!in_chain) return;
    check_kv_write(op, next);
    if (rotates)
      heads = heads_output(op, args);
    else
      check_product(op, x, next.norm, next.qkv,
                    (next.shape.num_heads + 2 * next.shape.num_kv_heads) * next.shape.head_dim);
  }
  // The rows that qkv_forward reads, in scratch memory; empty if it is not called.
  Tensor take_qkv(Context& context) const {
    if (!in_chain || rotates) return {};
    return context.scratch().take(args.x.dtype, {args.x.dim(0), args.to.qkv.w.dim(0)});
  }
  LinearEpilogue linear(const Tensor& qkv) const {
    LinearEpilogue out{};
    if (!qkv) return out;
    out.to = GemmEpilogue(qkv, args.to.qkv.bias, Tensor());
    out.N = static_cast<int>(args.to.qkv.w.dim(0));
    return out;
  }
  PersistentGemm gemm(int M) const {
    return rotates ? persistent_gemm(args.x, args.to.norm, args.to.qkv, heads, M)
                   : persistent_gemm(args.x, args.to.norm, args.to.qkv, linear_tiles(), M);
  }
  // Queues what the layer's kernel did not compute.
  void finish(Context& context, const Tensor& qkv) const {
    if (!args.to.q) return;
    if (!in_chain) return qkv_rope_cache(context, args);
    if (!rotates) qkv_rope_cache_from(context, args.to, qkv);
  }

 private:
  LinearEpilogue linear_tiles() const {
    LinearEpilogue out{};
    out.N = static_cast<int>(args.to.qkv.w.dim(0));
    return out;
  }
};

// Work of the busiest of `blocks` thread blocks: N tiles times chunks of K.
template <class Layer>
int64_t largest_share(const Layer& chain, int blocks) {
  int64_t share = 0;
  for (int p = 0; p < chain.count; ++p)
    share += int64_t{(chain.products[p].n_tiles + blocks - 1) / blocks} * chain.products[p].chunks;
  return share;
}

// Leaves eight SMs free if that costs the others at most 15% more work: the attention kernel that follows can then
// start early.
template <class Layer>
int num_blocks(const Layer& chain, int all) {
  const int fewer = std::max(all - 8, 1);
  int n_tiles = 1;
  for (int p = 0; p < chain.count; ++p) n_tiles = std::max(n_tiles, chain.products[p].n_tiles);
  return std::min(n_tiles, largest_share(chain, fewer) * 20 <= largest_share(chain, all) * 23 ? fewer : all);
}

// Partitions the GEMMs over the blocks. Returns the shared-memory bytes needed besides the rings and routing.
template <class Layer>
int partition(Layer& chain, int blocks) {
  for (int p = 0; p < chain.count; ++p) {
    PersistentGemm& product = chain.products[p];
    partition_n_tiles(product, blocks);
    chain.x_bytes = std::max(
        chain.x_bytes, std::max(product.x_rows, chain.M) * product.row_chunks * static_cast<int>(gemm_cuda_chunk) * 2);
    chain.sums_bytes =
        std::max(chain.sums_bytes, product.tile_slots * product.buffers * product.chunks * chain.M * 16 * 4);
  }
  return 128 + chain.x_bytes + chain.sums_bytes;
}

// A kernel whose rings fit shared memory. Even rings of one stage are faster than the separate steps.
template <class Layer>
struct PersistentLaunch {
  void (*kernel)(Layer) = nullptr;  // null: none fits
  int threads = 0, bytes = 0, stages = 0;

  static int most_bytes() { return max_shared_bytes() - PersistentLimits::static_bytes; }
  explicit PersistentLaunch(int other_bytes) {
    fits<4, 3>(other_bytes) || fits<3, 4>(other_bytes) || fits<2, 4>(other_bytes) || fits<1, 4>(other_bytes);
  }
  // True if every SM can hold a block: the blocks of a grid wait for each other.
  bool is_resident() const {
    if (!kernel || !device_limits().cooperative_launch) return false;
    allow_shared_memory(kernel, static_cast<size_t>(most_bytes()));
    int blocks = 0;
    HONE_CUDA_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, static_cast<size_t>(bytes)));
    return blocks > 0;
  }
  // Queues the layer; false if this stream does not own the device's cooperative barrier.
  bool run(Context& context, Layer& chain, int blocks) const {
    const CooperativeBarrier barrier = context.device().cooperative_barrier(context.stream());
    if (!barrier.word || blocks > barrier.most_blocks) return false;
    chain.barrier = barrier.word;
    launch_pdl(cuda_stream(context), kernel, {static_cast<unsigned>(blocks)}, threads, bytes, 1, chain);
    return true;
  }

 private:
  template <int Stages, int Copying>
  bool fits(int other_bytes) {
    const int all = other_bytes + PersistentLimits::warps * Stages * ring_stage_bytes;
    if (all > most_bytes()) return false;
    kernel = persistent_layer_kernel<Layer, Stages, Copying>;
    threads = chain_threads(Copying);
    bytes = all;
    stages = Stages;
    return true;
  }
};

}  // namespace hone
