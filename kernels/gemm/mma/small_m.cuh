#pragma once
// GEMM for M <= 8 rows: y = x . w^T with an epilogue (output.cuh), optionally with an RMSNorm of x. Its speed is close
// to that of reading w once. Only .cu and .cuh files include it.
//
// Use       decode passes of up to 8 rows (is_small_m()).
// Tile      8 rows of x by N tiles of 16 rows of w; one K chunk of 512 per warp. Persistent: a block loops over N
//           tiles. More than 12 chunks: a cluster of 2 blocks shares each tile (Clusters, compute capability 9.0).
// Roles     up to 14 warps. A warp keeps its chunk of x in registers as MMA operands (mma.sync, w as the A operand) and
//           copies its own w. The warps of an N tile add their sums together; up to 12 / warps tiles at a time (slots).
// Pipeline  a ring of 2, 3 or 4 smem stages per warp (cp.async); a stage is 16 rows of w by 256 (at most 8 chunks) or
//           128 elements: 8 or 4 KB.
// Smem      1 KB alignment + warps * (slots * (stages * stage + 2 * cluster * 512 bytes of sums) + M * 1 KB of x), at
//           most 225 KB or what the device allows a block; static: row statistics of the norm.
// Numerics  K chunks of gemm_cuda_chunk, each from zero, added in ascending order: bits equal wgmma.cuh. The norm has
//           the bits of rmsnorm_forward.
// PDL       triggers dependents at the start; fills the rings with w and loads the norm's weight before griddep_wait().
// Limits    M <= 8, K <= 14 * 512 (twice that with Clusters) if x fits shared memory; rows of x and w 16-byte aligned;
//           norm: few_rows_norm(K).
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/gemm/internal.h"
#include "kernels/gemm/mma/output.cuh"
#include "kernels/norm/rmsnorm_row.cuh"

namespace hone {

struct GemmSmallMShape {
  int M, N, K;
  int n_tiles, chunks;
  int cluster;     // thread blocks that share an N tile's chunks
  int warps;       // warps per N tile in a block
  int tile_slots;  // N tiles in work at a time in a block
  int stages;      // stages of each warp's ring
};

// RMSNorm of x before the GEMM, with the bits of rmsnorm_forward; none without a weight.
struct GemmSmallMNorm {
  const __nv_bfloat16* weight = nullptr;
  float eps = 0;
  RowShape shape;
  __nv_bfloat16* normed = nullptr;  // the normed rows, 16-byte aligned; nullptr: not stored
  int64_t normed_stride = 0;
};

// Groups: groups of 8 rows of x. Depth: K extent of a stage.
template <int Groups_, int Depth>
struct GemmSmallM {
  static constexpr int Groups = Groups_, most_warps = 14, most_threads = Depth == 256 ? 384 : 32 * most_warps;
  static constexpr int n_tile = 16, depth = Depth, stage_bytes = n_tile * depth * 2,
                       chunk_stages = gemm_cuda_chunk / depth;
  static constexpr int elements = n_tile * 8 * Groups;
  static int shared_bytes(const GemmSmallMShape& s) {
    return 1024 + s.warps * (s.tile_slots * (s.stages * stage_bytes + 2 * s.cluster * elements * 4) +
                             s.M * static_cast<int>(gemm_cuda_chunk) * 2);
  }
  static int bytes_in_flight(const GemmSmallMShape& s) { return s.warps * s.tile_slots * s.stages * stage_bytes; }
};

__device__ inline void store_at_first_block(const float* at, float x) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, 0;\n"
      "st.shared::cluster.f32 [there], %1;\n}" ::"r"(hopper::shared_address(at)),
      "f"(x)
      : "memory");
}

// One warp copies a stage of an N tile: 16 rows of w, columns [k, k + Depth), in tiles of 64 columns with the 128-byte
// swizzle (hopper.cuh). Columns past K are zero; rows past N repeat the last row.
template <int Depth>
__device__ inline void copy_n_tile(uint32_t to, const __nv_bfloat16* w, int64_t w_stride, int2 row_ranges, int k, int K,
                                   int N, int lane) {
  constexpr int lanes = Depth / 8, together = 32 / lanes;  // lanes per row; rows per copy
  const int part = lane % lanes, bytes = min(16, max(0, (K - k - part * 8) * 2));
  const __nv_bfloat16* const from = w + (bytes > 0 ? k + part * 8 : 0);
  to += static_cast<uint32_t>(part / 8 * (16 * 128));
#pragma unroll
  for (int i = 0; i < 16; i += together) {
    const int r = i + lane / lanes, row = min(i < 8 ? row_ranges.x + r : row_ranges.y + r - 8, N - 1);
    cp_async_streaming(to + static_cast<uint32_t>(r * 128 + ((part % 8 ^ r % 8) << 4)), from + int64_t{row} * w_stride,
                       bytes);
  }
}
// Loads the A operand of K step `step` of a stage. `from` is the lane's row of the stage: stage + lane % 16 * 128.
__device__ inline void load_strip(uint32_t (&a)[4], uint32_t from, int step, int lane) {
  hopper::ldmatrix_x4(
      from + static_cast<uint32_t>(step / 4 * (16 * 128) + (((step % 4 * 2 + (lane >> 4)) ^ (lane & 7)) << 4)), a[0],
      a[1], a[2], a[3]);
}

// Elements [k, k + 8) of a row; zero past K.
__device__ inline uint4 load_x(const __nv_bfloat16* row, int k, int K) {
  if (k + 8 <= K) return *reinterpret_cast<const uint4*>(row + k);
  uint32_t words[4] = {};
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (k + j < K) words[j / 2] |= bits_of(row[k + j]) << (j % 2 * 16);
  return {words[0], words[1], words[2], words[3]};
}

template <class Few, int Stages, bool Clusters, class Output>
__global__ void __launch_bounds__(Few::most_threads, 1)
    gemm_few_kernel(const __nv_bfloat16* w, int64_t w_stride, const __nv_bfloat16* x, int64_t x_stride, Output output,
                    GemmSmallMNorm norm, GemmSmallMShape shape) {
  using namespace hopper;
  constexpr int half = Few::n_tile / 2;
  extern __shared__ char unaligned[];
  char* shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0),
            lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = static_cast<int>(blockIdx.x) % shape.cluster, block = static_cast<int>(blockIdx.x) / shape.cluster;
  const int slot = warp / shape.warps, chunk = rank * shape.warps + warp % shape.warps;
  const uint32_t ring = shared_address(shared) + static_cast<uint32_t>(warp * Stages * Few::stage_bytes);
  char* x_shared = shared + shape.warps * shape.tile_slots * Stages * Few::stage_bytes;
  const int sums_size = shape.cluster * shape.warps * Few::elements;  // per N tile
  float* sums = reinterpret_cast<float*>(x_shared + shape.M * shape.warps * gemm_cuda_chunk * 2) + slot * 2 * sums_size;
  const int blocks = static_cast<int>(gridDim.x) / shape.cluster, first = slot * blocks + block,
            step = shape.tile_slots * blocks;
  const int begin = chunk * static_cast<int>(gemm_cuda_chunk);

  // Issues this warp's next copy: N tile after N tile, stage after stage.
  int ahead_n_tile = first, ahead_stage = 0, ahead_place = 0;
  const auto copy_next = [&] {
    if (ahead_n_tile < shape.n_tiles) {
      copy_n_tile<Few::depth>(ring + static_cast<uint32_t>(ahead_place * Few::stage_bytes), w, w_stride,
                              output.template row_ranges<half>(ahead_n_tile), begin + ahead_stage * Few::depth, shape.K,
                              shape.N, lane);
      if (++ahead_place == Stages) ahead_place = 0;
      if (++ahead_stage == Few::chunk_stages) {
        ahead_stage = 0;
        ahead_n_tile += step;
      }
    }
    cp_async_commit();
  };
  griddep_launch_dependents();
  // Prologue. w is constant during a pass, so it may be read before the kernel before has ended.
#pragma unroll 1  // instruction fetch of code that runs once costs more than its execution
  for (int s = 0; s < Stages; ++s) copy_next();
  constexpr int most_factors = 2;  // a warp holds one chunk; a block holds all chunks of a row that is normed
  uint4 factors[most_factors];
  if (norm.weight)
#pragma unroll
    for (int i = 0; i < most_factors; ++i) {
      const int at = (static_cast<int>(threadIdx.x) + i * static_cast<int>(blockDim.x)) * 8;
      factors[i] = at < shape.K ? *reinterpret_cast<const uint4*>(norm.weight + at) : uint4{};
    }
  griddep_wait();  // x is written

  // x goes to shared memory in 16-byte units; unit u of row r at u ^ (r % 8); zero past K. These are ordinary loads:
  // cp.async groups complete in order, so x would wait for w.
  const int pieces = shape.warps * static_cast<int>(gemm_cuda_chunk) / 8, rank_begin = rank * pieces * 8;
  constexpr int at_once = 4;  // units per thread
  const int all_pieces = shape.M * pieces, all_threads = static_cast<int>(blockDim.x);
  for (int first_piece = static_cast<int>(threadIdx.x); first_piece < all_pieces;
       first_piece += at_once * all_threads) {
    uint4 numbers[at_once];
    const auto each = [&](auto body) {
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        if (const int at = first_piece + i * all_threads; at < all_pieces) body(numbers[i], at / pieces, at % pieces);
    };
    each([&](uint4& to, int row, int piece) { to = load_x(x + row * x_stride, rank_begin + piece * 8, shape.K); });
    each([&](const uint4& from, int row, int piece) {
      reinterpret_cast<uint4*>(x_shared)[row * pieces + (piece ^ (row & 7))] = from;
    });
  }
  bool alone = true;
  if constexpr (Clusters) {
    alone = shape.cluster == 1;
    if (!alone) cluster_sync();  // x is in shared memory; block 0 is ready for remote stores
  }
  if (alone) __syncthreads();  // x is in shared memory
  if (norm.weight) {
    __shared__ __align__(16) float squares[8 * Few::Groups * RmsNormRows::most_warps];
    const auto at = [&](int row, int piece) {
      return reinterpret_cast<uint4*>(x_shared) + row * pieces + (piece ^ (row & 7));
    };
    norm_rows(at, shape.M, shape.K, norm.shape, norm.eps, factors, squares, all_threads, [] { __syncthreads(); });
    __syncthreads();  // x is normed
    if (norm.normed && blockIdx.x == 0)
      for (int row = 0; row < shape.M; ++row)
        for (int piece = static_cast<int>(threadIdx.x); piece < shape.K / 8; piece += all_threads)
          reinterpret_cast<uint4*>(norm.normed + row * norm.normed_stride)[piece] = *at(row, piece);
  }
  // B operands. Rows past M repeat the last row; their results are not stored.
  const int g = lane / 4, t = lane % 4;
  uint32_t b[Few::Groups][gemm_cuda_chunk / 16][2];
#pragma unroll
  for (int i = 0; i < Few::Groups; ++i) {
    const int row = min(lane % 8 + 8 * i, shape.M - 1);
    const uint32_t from = shared_address(x_shared) + static_cast<uint32_t>(row * pieces * 16);
    const int piece = warp % shape.warps * static_cast<int>(gemm_cuda_chunk) / 8 + lane / 8;
#pragma unroll
    for (int s = 0; s < gemm_cuda_chunk / 16; s += 2)
      ldmatrix_x4(from + static_cast<uint32_t>(((piece + 2 * s) ^ (row & 7)) << 4), b[i][s][0], b[i][s][1],
                  b[i][s + 1][0], b[i][s + 1][1]);
  }

  // Main loop over N tiles. Sums are double-buffered, so one barrier per tile is enough.
  int place = 0, odd = 0;
  const int threads = shape.warps * 32, thread = warp % shape.warps * 32 + lane;
  for (int n_tile = first; n_tile < shape.n_tiles; n_tile += step, odd ^= 1) {
    float* to = sums + odd * sums_size;
    constexpr int pairs = half * 8 * Few::Groups, most = pairs / 32;  // pairs per N tile; pairs per thread
    typename Output::template Extra<1> extra[most];
#pragma unroll
    for (int i = 0; i < most; ++i) {
      const int e = thread + i * threads;
      if (e < pairs && e / half < shape.M && rank == 0)
        extra[i] = output.template fetch<half, 1>(e / half, n_tile, e % half);
    }
    float d[Few::Groups][4] = {};
#pragma unroll
    for (int stage = 0; stage < Few::chunk_stages; ++stage) {
      cp_async_wait<Stages - 1>();
      __syncwarp();  // the stage's copies of all lanes have landed
      const uint32_t from = ring + static_cast<uint32_t>(place * Few::stage_bytes + lane % 16 * 128);
#pragma unroll
      for (int s = 0; s < Few::depth / 16; ++s) {
        uint32_t a[4];
        load_strip(a, from, s, lane);
#pragma unroll
        for (int i = 0; i < Few::Groups; ++i) mma::mma_bf16(d[i], a, b[i][stage * (Few::depth / 16) + s]);
      }
      if (++place == Stages) place = 0;
      __syncwarp();  // all lanes have read the stage
      copy_next();
    }
#pragma unroll
    for (int i = 0; i < Few::Groups; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float* at = to + chunk * Few::elements + (i * 8 + 2 * t + e % 2) * Few::n_tile + g + e / 2 * 8;
        if constexpr (Clusters)
          if (!alone) store_at_first_block(at, d[i][e]);
        if (alone) *at = d[i][e];
      }
    if constexpr (Clusters)
      if (!alone) cluster_sync();                      // the sums of both blocks are in block 0
    if (alone) named_barrier_sync(slot + 1, threads);  // the warps of this tile have stored their sums
    if (rank > 0) continue;
    // Reduction and epilogue.
    const auto total = [&](int e) {
      float sum = to[e];
      for (int c = 1; c < shape.chunks; ++c) sum += to[c * Few::elements + e];
      return sum;
    };
#pragma unroll
    for (int i = 0; i < most; ++i) {
      const int e = thread + i * threads, m = e / half, r = e % half;
      if (e >= pairs || m >= shape.M) continue;
      const float first[1] = {total(m * Few::n_tile + r)}, second[1] = {total(m * Few::n_tile + r + half)};
      output.template store<half, 1>(first, second, extra[i], m, n_tile, r);
    }
  }
}

// The dynamic shared memory that a thread block may use.
inline int gemm_few_bytes() { return std::min(225 * 1024, max_shared_bytes() - 1024); }

// The number of chunks, thread blocks per cluster and warps of a problem.
inline GemmSmallMShape gemm_few_split(int64_t M, int64_t N, int64_t K, bool clusters) {
  GemmSmallMShape s{};
  s.M = static_cast<int>(M);
  s.N = static_cast<int>(N);
  s.K = static_cast<int>(K);
  s.chunks = (s.K + static_cast<int>(gemm_cuda_chunk) - 1) / static_cast<int>(gemm_cuda_chunk);
  s.cluster = clusters && s.chunks > 12 ? 2 : 1;
  s.warps = (s.chunks + s.cluster - 1) / s.cluster;
  return s;
}

// True if launch_gemm_small_m() supports M rows of K columns. x and w must be tma_compatible().
inline bool is_small_m(int64_t M, int64_t K, bool clusters = true) {
  using Few = GemmSmallM<1, 128>;
  if (M > 8 || K > (clusters ? 2 : 1) * Few::most_warps * gemm_cuda_chunk) return false;
  GemmSmallMShape s = gemm_few_split(M, 0, K, clusters);
  s.tile_slots = 1;
  s.stages = 2;
  return Few::shared_bytes(s) <= gemm_few_bytes();
}

// True if the norm can be fused for rows of K columns.
inline bool few_rows_norm(int64_t K) { return K % 8 == 0 && K <= 12 * gemm_cuda_chunk; }

template <class Few, int Stages, bool Clusters, class Output>
void launch_gemm_few_stages(cudaStream_t stream, const Tensor& x, const Tensor& w, const Output& output,
                            const GemmSmallMNorm& norm, const GemmSmallMShape& s) {
  const auto kernel = gemm_few_kernel<Few, Stages, Clusters, Output>;
  allow_shared_memory(kernel, static_cast<size_t>(gemm_few_bytes()));
  const int blocks = std::min(s.n_tiles, num_sms() / s.cluster) * s.cluster;
  launch_pdl(stream, kernel, {static_cast<unsigned>(blocks)}, s.warps * s.tile_slots * 32, Few::shared_bytes(s),
             s.cluster, numbers<const __nv_bfloat16>(w), w.row_stride, numbers<const __nv_bfloat16>(x), x.row_stride,
             output, norm, s);
}

// Chooses the stages and slots that fit and have the most bytes in flight; among equals, the most warps.
template <class Few>
GemmSmallMShape gemm_few_shape(GemmSmallMShape s) {
  GemmSmallMShape best = s;
  const int max_tile_slots = s.cluster > 1 ? 1 : std::clamp(12 / s.warps, 1, (s.n_tiles + num_sms() - 1) / num_sms());
  for (s.tile_slots = max_tile_slots; s.tile_slots >= 1; --s.tile_slots)
    for (s.stages = 4; s.stages >= 2; --s.stages)
      if (Few::shared_bytes(s) <= gemm_few_bytes() && Few::bytes_in_flight(s) > Few::bytes_in_flight(best)) best = s;
  return best;
}

template <class Few, bool Clusters, class Output>
void launch_gemm_few_depth(cudaStream_t stream, const Tensor& x, const Tensor& w, const Output& output,
                           const GemmSmallMNorm& norm, GemmSmallMShape shape) {
  shape.n_tiles = output.template tiles<Few::n_tile / 2>();
  const GemmSmallMShape s = gemm_few_shape<Few>(shape);
  if (s.stages == 4)
    launch_gemm_few_stages<Few, 4, Clusters>(stream, x, w, output, norm, s);
  else if (s.stages == 3)
    launch_gemm_few_stages<Few, 3, Clusters>(stream, x, w, output, norm, s);
  else
    launch_gemm_few_stages<Few, 2, Clusters>(stream, x, w, output, norm, s);
}

// Clusters: thread blocks of a cluster may share a tile. Needs compute capability 9.0.
template <bool Clusters = true, class Output>
void launch_gemm_small_m(cudaStream_t stream, const Tensor& x, const Tensor& w, const Output& output,
                         const GemmSmallMNorm& norm = {}) {
  const GemmSmallMShape s = gemm_few_split(x.dim(0), w.dim(0), w.dim(1), Clusters);
  GemmSmallMShape least = s;
  least.tile_slots = 1;
  least.stages = 2;
  if (s.chunks <= 8 && GemmSmallM<1, 256>::shared_bytes(least) <= gemm_few_bytes())
    launch_gemm_few_depth<GemmSmallM<1, 256>, Clusters>(stream, x, w, output, norm, s);
  else
    launch_gemm_few_depth<GemmSmallM<1, 128>, Clusters>(stream, x, w, output, norm, s);
}

}  // namespace hone
