#pragma once
// The products of project_between for a few rows, one after another in one kernel whose blocks wait for each other between them. .cu files alone
// include it.
//
// Weights do not depend on what the kernel computes: some warps do nothing but copy them into rings in shared memory, as far ahead as these reach and
// from one product into the next, while the results of the one before are still on their way between blocks. Each ring is one other warp's, which
// multiplies. A strip of 16 rows of w is shared by some of these, each with every `warps`-th chunk of gemm_cuda_chunk along k; sums are those of
// gemm_few_sm90.cuh, in the same order.
#include <algorithm>
#include <climits>
#include <utility>

#include "kernels/gemm_few_sm90.cuh"

namespace hone {

// y = total + bias + residual in bf16, an output of gemm_output.cuh for halves of 8 and a count of 1; N is a multiple of 8. What is added stays as it
// was read until the total is there: nothing waits for it.
struct GemmSum {
  __nv_bfloat16* y;
  const __nv_bfloat16 *bias, *residual;
  int64_t y_stride, residual_stride;
  int N;

  template <int>
  struct Extra {
    __nv_bfloat16 bias[2], residual[2];
    __nv_bfloat16* to;
    bool biased, both;  // whether w has the second run
  };
  template <int half>
  __host__ __device__ int tiles() const {
    return (N + 2 * half - 1) / (2 * half);
  }
  template <int half, int count>
  __device__ Extra<count> fetch(int m, int tile, int r) const {
    static_assert(half == 8);
    const int n = tile * 2 * half + r;
    Extra<count> out;
    out.to = y + m * y_stride + n, out.biased = bias, out.both = n + half < N;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i == 1 && !out.both) continue;
      if (bias) out.bias[i] = bias[n + i * half];
      out.residual[i] = residual[m * residual_stride + n + i * half];
    }
    return out;
  }
  template <int half, int count>
  __device__ void store(const float (&first)[count], const float (&second)[count], const Extra<count>& extra, int, int, int) const {
    const auto put = [&](int i, float x) {
      if (extra.biased) x += __bfloat162float(extra.bias[i]);
      extra.to[i * half] = __float2bfloat16_rn(x + __bfloat162float(extra.residual[i]));
    };
    put(0, first[0]);
    if (extra.both) put(1, second[0]);
  }
};

// Where in w a strip's two runs of eight rows begin: what the outputs' runs<8>() say, by one rule for all of them.
struct ChainRuns {
  int a_head, head_rows, paired_heads, partner;  // strips and rows of a head; heads whose runs are apart
  __device__ int2 of(int strip) const {
    const int head = strip / a_head, j = strip - head * a_head;
    const bool paired = head < paired_heads;
    const int first = head * head_rows + j * (paired ? 8 : 16);
    return {first, first + (paired ? partner : 8)};
  }
};
inline ChainRuns chain_runs(const GemmSum&) { return {INT_MAX, 0, 0, 0}; }
inline ChainRuns chain_runs(const GemmGated& to) { return {INT_MAX, 0, 1, to.F}; }
inline ChainRuns chain_runs(const GemmHeads& to) { return {to.dim / 16, to.dim, to.heads + to.kv_heads, to.dim / 2}; }

struct ChainProduct {
  const __nv_bfloat16 *w, *x;
  int64_t w_stride, x_stride;
  ChainRuns runs;
  GemmFewNorm norm;
  int N, K, strips, chunks;
  int warps, slots;  // that share a strip; strips that a block works on at a time
  int buffers;       // of a slot's sums
};

struct Chain {
  static constexpr int warps = 12;              // that multiply
  static constexpr int all_bytes = 226 * 1024;  // of dynamic shared memory
  ChainProduct products[4];                     // output, gate_up, down, heads
  GemmSum output, down;
  GemmGated gated;
  GemmHeads heads;
  int count, M;
  int x_bytes;  // of the largest x
  uint32_t* barrier;
};

// Warps that multiply, that copy, and one that meets the other blocks.
constexpr int chain_threads(int copying) { return 32 * (Chain::warps + copying + 1); }

// The stages of a warp's ring, in the order in which it multiplies: product after product, strip after strip, chunk after chunk. A lane copies 16
// bytes of every other row.
class ChainStages {
 public:
  static constexpr int depth = 128, bytes = 16 * depth * 2, a_chunk = static_cast<int>(gemm_cuda_chunk) / depth;  // depth: along k

  __device__ ChainStages(const Chain& chain, int warp, int lane) : chain_(chain), warp_(warp), piece_(lane % a_row), row_(lane / a_row) { enter(); }
  __device__ int product() const { return product_; }  // count behind the last stage
  __device__ void next() {
    if (++stage_ < a_chunk) return;
    const ChainProduct& now = chain_.products[product_];
    stage_ = 0, chunk_ += now.warps;
    if (chunk_ < now.chunks) return;
    chunk_ = first_chunk_, strip_ += now.slots * static_cast<int>(gridDim.x);
    strip_ < strips_ ? find_rows() : enter();
  }
  // By a warp, as copy_strip does it. `to` lies on 128 bytes.
  __device__ void copy(uint32_t to) const {
    const ChainProduct& now = chain_.products[product_];
    const int column = chunk_ * static_cast<int>(gemm_cuda_chunk) + stage_ * depth, count = column + piece_ * 8 < now.K ? 16 : 0;
    const int64_t step = count > 0 ? together * now.w_stride : 0;
    to += static_cast<uint32_t>(piece_ / 8 * (16 * 128) + row_ * 128 + ((piece_ % 8 ^ row_) << 4));
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const __nv_bfloat16* from = count > 0 ? (half == 0 ? first_ : second_) + column : now.w;
#pragma unroll
      for (uint32_t r = 0; r < 8; r += together, from += step) copy_16_bytes((to ^ r << 4) + (half * 8 + r) * 128, from, count);
    }
  }

 private:
  static constexpr int a_row = depth / 8, together = 32 / a_row;  // lanes of a row, rows of one copy

  // The next product of which the warp has a part.
  __device__ void enter() {
    while (++product_ < chain_.count) {
      const ChainProduct& now = chain_.products[product_];
      const int slot = warp_ / now.warps;
      first_chunk_ = chunk_ = warp_ - slot * now.warps;
      strip_ = slot * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x), strips_ = now.strips;
      if (slot < now.slots && strip_ < strips_) return find_rows();
    }
  }
  __device__ void find_rows() {
    const ChainProduct& now = chain_.products[product_];
    const int2 runs = now.runs.of(strip_);
    const auto at = [&](int row) { return now.w + (row + row_) * now.w_stride + piece_ * 8; };
    first_ = at(runs.x), second_ = at(runs.y < now.N ? runs.y : runs.x);  // of a run that w has not nothing is stored
  }

  const Chain& chain_;
  int warp_, piece_, row_;
  int product_ = -1, strip_ = 0, strips_ = 0, first_chunk_ = 0, chunk_ = 0, stage_ = 0;
  const __nv_bfloat16 *first_ = nullptr, *second_ = nullptr;  // the lane's, of the strip's two runs
};

// The stages of one warp's ring, full and empty in turn.
template <int Stages>
struct ChainRing {
  hopper::Barrier full[Stages], empty[Stages];
};

// What the copying warp number `index` does: its share of the rings, each a stage further whenever there is room. None goes on to the next product
// while another still lacks stages of this one: its copies would be served first.
template <int Stages, int Copying, int... i>
__device__ inline void fill_rings(const Chain& chain, ChainRing<Stages>* rings, uint32_t memory, int index, int lane,
                                  std::integer_sequence<int, i...>) {
  ChainStages stages[] = {ChainStages(chain, index + i * Copying, lane)...};
  uint32_t taken[sizeof...(i)] = {};
  const auto earliest = [&] {
    int product = INT_MAX;
    ((product = min(product, stages[i].product())), ...);
    return product;
  };
  const auto copy = [&](ChainStages& stage, uint32_t& number, int warp, int product) {
    const uint32_t place = number % Stages;
    if (stage.product() > product || !__all_sync(0xffffffffu, rings[warp].empty[place].done((number / Stages & 1) ^ 1))) return;
    stage.copy(memory + (static_cast<uint32_t>(warp) * Stages + place) * ChainStages::bytes);
    rings[warp].full[place].arrive_after_copies();
    ++number, stage.next();
  };
  for (int product = 0; product < chain.count; product = earliest()) (copy(stages[i], taken[i], index + i * Copying, product), ...);
}

// Whole warps meet, whichever way their lanes came; the barriers 1 to Chain::warps are the slots'.
__device__ inline void meet_warps(int id, int threads) {
  __syncwarp();
  hopper::meet(id, threads);
}
__device__ inline void meet_multiplying() { meet_warps(Chain::warps + 1, Chain::warps * 32); }
// Those and the one that meets the other blocks.
__device__ inline void meet_all_but_copying() { meet_warps(Chain::warps + 2, (Chain::warps + 1) * 32); }

// What the warp that meets the other blocks does: between two products it waits until all have come; what each wrote before is visible to all then.
// The word is Device::grid_barrier()'s: its top bit turns whenever all have come, and the rest is zero again.
__device__ inline void meet_blocks(const Chain& chain, int lane) {
  hopper::wait_for_previous();
  uint32_t before = 0, now = 0;
  if (lane == 0) asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(before) : "l"(chain.barrier) : "memory");
  const uint32_t arrival = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
#pragma unroll 1
  for (int p = 1; p < chain.count; ++p) {
    meet_all_but_copying();
    if (lane == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(chain.barrier), "r"(arrival) : "memory");
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(chain.barrier) : "memory");
      } while (((before ^ now) & 0x80000000u) == 0);
      before = now;
    }
    meet_all_but_copying();
  }
}

// A thread's share of the copies of all rows of a product's x to shared memory, in 16-byte pieces that a row's number swizzles, zero beyond K.
class ChainRows {
 public:
  __device__ ChainRows(const ChainProduct& now, uint32_t shared)
      : first_(now.x),
        from_(now.x + threadIdx.x * 8),
        next_row_(now.x_stride),
        shared_(shared),
        pieces_(now.chunks * static_cast<int>(gemm_cuda_chunk) / 8),
        filled_(now.K / 8),
        piece_(static_cast<int>(threadIdx.x)) {
    settle();
  }
  // Waits until they are there.
  __device__ void copy(int M) {
    constexpr int threads = Chain::warps * 32;
    for (; row_ < M; piece_ += threads, from_ += threads * 8, settle())
      copy_16_bytes(shared_ + static_cast<uint32_t>(row_ * pieces_ + (piece_ ^ (row_ & 7))) * 16, piece_ < filled_ ? from_ : first_,
                    piece_ < filled_ ? 16 : 0);
    commit_copies();
    wait_copies<0>();
  }

 private:
  __device__ void settle() {
    while (piece_ >= pieces_) piece_ -= pieces_, ++row_, from_ += next_row_ - pieces_ * 8;
  }
  const __nv_bfloat16 *first_, *from_;
  int64_t next_row_;
  uint32_t shared_;
  int pieces_, filled_, piece_, row_ = 0;
};

// Copying: warps that copy, of equal shares of the rings.
template <int Stages, int Copying>
__global__ void __launch_bounds__(chain_threads(Copying), 1) gemm_chain_kernel(const __grid_constant__ Chain chain) {
  using namespace hopper;
  constexpr int half = 8;
  extern __shared__ char unaligned[];
  __shared__ __align__(16) float squares[8 * RmsNormRows::most_warps];
  __shared__ ChainRing<Stages> rings[Chain::warps];
  static_assert(sizeof squares + sizeof rings + Chain::all_bytes <= 227 * 1024);
  char* const shared = unaligned + (128 - shared_address(unaligned) % 128) % 128;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), lane = static_cast<int>(threadIdx.x % 32);
  if (warp < Chain::warps && lane < Stages) rings[warp].full[lane].init(32), rings[warp].empty[lane].init(32);
  let_next_start();
  __syncthreads();
  // w comes from outside of the step: it may be read before the kernel queued before has ended.
  if (warp == Chain::warps + Copying) return meet_blocks(chain, lane);
  if (warp >= Chain::warps)
    return fill_rings<Stages, Copying>(chain, rings, shared_address(shared), warp - Chain::warps, lane,
                                       std::make_integer_sequence<int, Chain::warps / Copying>());

  const uint32_t ring = shared_address(shared) + static_cast<uint32_t>(warp * Stages * ChainStages::bytes);
  char* const x_shared = shared + Chain::warps * Stages * ChainStages::bytes;
  float* const all_sums = reinterpret_cast<float*>(x_shared + chain.x_bytes);
  // Rows of x beyond M are other rows, and what comes of them is dropped.
  const int M = chain.M, row = min(lane & 7, M - 1), g = lane >> 2, t = lane & 3;
  uint32_t taken = 0;
  GemmSum::Extra<1> sum_extra;
  GemmGated::Extra<1> gated_extra;
  GemmHeads::Extra<1> heads_extra;
#pragma unroll 1
  for (int p = 0; p < chain.count; ++p) {
    const ChainProduct now = chain.products[p];
    const auto with_output = [&](auto body) {
      if (p == 1)
        body(chain.gated, gated_extra);
      else if (p == 3)
        body(chain.heads, heads_extra);
      else
        body(p == 0 ? chain.output : chain.down, sum_extra);
    };
    // Beside the other blocks' coming: whatever does not depend on it.
    if (p == 0)
      wait_for_previous();
    else
      meet_all_but_copying();
    const int slot = warp / now.warps, first_chunk = warp - slot * now.warps, thread = first_chunk * 32 + lane;
    const int threads = min(now.warps, Chain::warps - slot * now.warps) * 32;  // the last slot may lack warps: it has no strips
    const int chunks = now.chunks, all_strips = now.strips, strips = slot < now.slots ? all_strips : 0, a_chunk = M * 2 * half;  // sums
    const int first = slot * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x), step = now.slots * static_cast<int>(gridDim.x);
    const uint32_t x_row = shared_address(x_shared) + static_cast<uint32_t>(row * chunks * static_cast<int>(gemm_cuda_chunk) * 2);
    float* to = all_sums + slot * now.buffers * chunks * a_chunk;
    uint4 factors[2];
    if (now.norm.weight)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = (static_cast<int>(threadIdx.x) + i * Chain::warps * 32) * 8;
        factors[i] = at < now.K ? *reinterpret_cast<const uint4*>(now.norm.weight + at) : uint4{};
      }
    const auto fetch = [&](int strip) {
      if (strip < strips && thread < half * M)
        with_output([&](const auto& output, auto& extra) { extra = output.template fetch<half, 1>(thread >> 3, strip, thread & 7); });
    };
    fetch(first);
    ChainRows x(now, shared_address(x_shared));
    if (p > 0) meet_all_but_copying();
    x.copy(M);
    meet_multiplying();
    if (now.norm.weight) {
      const int pieces = chunks * static_cast<int>(gemm_cuda_chunk) / 8;
      const auto at = [&](int r, int piece) { return reinterpret_cast<uint4*>(x_shared) + r * pieces + (piece ^ (r & 7)); };
      norm_rows(at, M, now.K, now.norm.shape, now.norm.eps, factors, squares, Chain::warps * 32, meet_multiplying);
      meet_multiplying();
    }
    int odd = 0;
    // All slots meet as often as the first, which has most strips: racecheck of compute-sanitizer loses its way where they do not.
#pragma unroll 1
    for (int strip = first, of_first = static_cast<int>(blockIdx.x); of_first < all_strips;
         strip += step, of_first += step, odd ^= 1, to += odd ? chunks * a_chunk : -chunks * a_chunk) {
      if (strip > first) fetch(strip);
#pragma unroll 1
      for (int chunk = first_chunk; strip < strips && chunk < chunks; chunk += now.warps) {
        float d[4] = {};
#pragma unroll 1
        for (int stage = 0; stage < ChainStages::a_chunk; ++stage) {
          const uint32_t place = taken % Stages;
          rings[warp].full[place].wait(taken / Stages & 1);
          const uint32_t from = ring + place * ChainStages::bytes + static_cast<uint32_t>((lane & 15) * 128);
          const int piece = chunk * (static_cast<int>(gemm_cuda_chunk) / 8) + stage * (ChainStages::depth / 8) + (lane >> 3);
#pragma unroll
          for (int s = 0; s < ChainStages::depth / 16; s += 2) {
            uint32_t b[2][2];
            load_matrices(x_row + static_cast<uint32_t>(((piece + 2 * s) ^ (row & 7)) << 4), b[0][0], b[0][1], b[1][0], b[1][1]);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              uint32_t a[4];
              load_strip(a, from, s + i, lane);
              mma_k16(d, a, b[i]);
            }
          }
          rings[warp].empty[place].arrive();
          ++taken;
        }
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (2 * t + e % 2 < M) to[chunk * a_chunk + (2 * t + e % 2) * 2 * half + g + e / 2 * 8] = d[e];
      }
      meet_warps(slot + 1, threads);
      if (strip >= strips) continue;
      for (int e = thread; e < half * M; e += threads) {
        const int m = e >> 3, r = e & 7;
        const float* from = to + m * 2 * half + r;
        float total[2][1] = {{from[0]}, {from[half]}};
        constexpr int at_once = 6;
        for (int c = 1; c < chunks; c += at_once) {
          float sums[at_once][2];
#pragma unroll
          for (int i = 0; i < at_once; ++i)
            if (from += a_chunk; c + i < chunks) sums[i][0] = from[0], sums[i][1] = from[half];
#pragma unroll
          for (int i = 0; i < at_once; ++i)
            if (c + i < chunks) total[0][0] += sums[i][0], total[1][0] += sums[i][1];
        }
        with_output([&](const auto& output, auto& extra) {
          if (e != thread) extra = output.template fetch<half, 1>(m, strip, r);
          output.template store<half, 1>(total[0], total[1], extra, m, strip, r);
        });
      }
    }
  }
}

// How `blocks` blocks and their warps share a product: least time of the busiest warp; of equals those with most warps busy.
inline void deal_strips(ChainProduct& product, int blocks) {
  const int strips = (product.strips + blocks - 1) / blocks;  // of a block
  int least = INT_MAX, most_busy = 0;
  for (int warps = 1; warps <= std::min(Chain::warps, product.chunks); ++warps) {
    const int slots = std::min(Chain::warps / warps, strips), busy = warps * slots;
    const int time = (strips + slots - 1) / slots * ((product.chunks + warps - 1) / warps);
    if (time > least || (time == least && busy <= most_busy)) continue;
    least = time, most_busy = busy;
    product.warps = warps, product.slots = slots, product.buffers = strips > slots ? 2 : 1;
  }
}

}  // namespace hone
