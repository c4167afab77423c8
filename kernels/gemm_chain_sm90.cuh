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

#include "kernels/gemm_few_sm90.cuh"

namespace hone {

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
inline ChainRuns chain_runs(const GemmPlain&) { return {INT_MAX, 0, 0, 0}; }
inline ChainRuns chain_runs(const GemmGated& to) { return {INT_MAX, 0, 1, to.F}; }
inline ChainRuns chain_runs(const GemmHeads& to) { return {to.dim / 16, to.dim, to.heads + to.kv_heads, to.dim / 2}; }

struct ChainProduct {
  const __nv_bfloat16 *w, *x;
  int64_t w_stride, x_stride;
  ChainRuns runs;
  GemmFewNorm norm;
  int N, K, strips, chunks;
  int warps, slots;  // that share a strip; strips that a block works on at a time
};

struct Chain {
  static constexpr int warps = 12, copying = 4, threads = 32 * (warps + copying);  // that multiply, that copy
  static constexpr int all_bytes = 225 * 1024;                                     // of dynamic shared memory
  ChainProduct products[4];                                                        // output, gate_up, down, heads
  GemmPlain output, down;
  GemmGated gated;
  GemmHeads heads;
  int count, M;
  int x_bytes;  // of the largest x
  uint32_t* barrier;
};

// The stages of a warp's ring, in the order in which it multiplies: product after product, strip after strip, chunk after chunk. Depth: of a stage,
// along k.
template <int Depth>
class ChainStages {
 public:
  static constexpr int bytes = 16 * Depth * 2, a_chunk = static_cast<int>(gemm_cuda_chunk) / Depth;

  __device__ ChainStages(const Chain& chain, int warp) : chain_(chain), warp_(warp) { enter(); }
  __device__ int product() const { return product_; }  // count behind the last stage
  __device__ void next() {
    if (++stage_ < a_chunk) return;
    const ChainProduct& now = chain_.products[product_];
    stage_ = 0, chunk_ += now.warps;
    if (chunk_ < now.chunks) return;
    chunk_ = first_chunk_, strip_ += now.slots * static_cast<int>(gridDim.x);
    if (strip_ >= strips_) enter();
  }
  // By a warp.
  __device__ void copy(uint32_t to, int lane) const {
    const ChainProduct& now = chain_.products[product_];
    copy_strip<Depth>(to, now.w, now.w_stride, now.runs.of(strip_), chunk_ * static_cast<int>(gemm_cuda_chunk) + stage_ * Depth, now.K, now.N, lane);
  }

 private:
  // The next product of which the warp has a part.
  __device__ void enter() {
    while (++product_ < chain_.count) {
      const ChainProduct& now = chain_.products[product_];
      const int slot = warp_ / now.warps;
      first_chunk_ = chunk_ = warp_ - slot * now.warps;
      strip_ = slot * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x), strips_ = now.strips;
      if (slot < now.slots && strip_ < strips_) return;
    }
  }

  const Chain& chain_;
  int warp_, product_ = -1, strip_ = 0, strips_ = 0, first_chunk_ = 0, chunk_ = 0, stage_ = 0;
};

// The stages of one warp's ring, full and empty in turn.
template <int Stages>
struct ChainRing {
  hopper::Barrier full[Stages], empty[Stages];
};

// What the copying warp number `index` does: its share of the rings, each a stage further whenever there is room. None goes on to the next product
// while another still lacks stages of this one: its copies would be served first.
template <int Depth, int Stages>
__device__ inline void fill_rings(const Chain& chain, ChainRing<Stages>* rings, uint32_t memory, int index, int lane) {
  constexpr int own = Chain::warps / Chain::copying;
  using S = ChainStages<Depth>;
  S stages[own] = {S(chain, index), S(chain, index + Chain::copying), S(chain, index + 2 * Chain::copying)};
  static_assert(own == 3);
  uint32_t taken[own] = {};
  for (int product = 0; product < chain.count; product = min(stages[0].product(), min(stages[1].product(), stages[2].product())))
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const int warp = index + i * Chain::copying;
      const uint32_t place = taken[i] % Stages;
      if (stages[i].product() > product || !__all_sync(0xffffffffu, rings[warp].empty[place].done((taken[i] / Stages & 1) ^ 1))) continue;
      stages[i].copy(memory + (static_cast<uint32_t>(warp) * Stages + place) * S::bytes, lane);
      rings[warp].full[place].arrive_after_copies();
      ++taken[i], stages[i].next();
    }
}

// Whole warps meet, whichever way their lanes came; the barriers 1 to Chain::warps are the slots'.
__device__ inline void meet_warps(int id, int threads) {
  __syncwarp();
  hopper::meet(id, threads);
}
__device__ inline void meet_multiplying() { meet_warps(Chain::warps + 1, Chain::warps * 32); }

// All blocks meet: enter() says that this one has come, wait() returns when all have; what each wrote before is visible to all then. By one thread.
// The word is Device::grid_barrier()'s: its top bit turns whenever all have come, and the rest is zero again.
struct GridMeeting {
  uint32_t* word;
  uint32_t before = 0;
  __device__ void look() { asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(before) : "l"(word) : "memory"); }
  __device__ void enter() {
    const uint32_t arrival = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(arrival) : "memory");
  }
  __device__ void wait() {
    uint32_t now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    } while (((before ^ now) & 0x80000000u) == 0);
    before = now;
  }
};

// All rows of a product's x to shared memory, in 16-byte pieces that a row's number swizzles, zero beyond K; normed there. meanwhile() runs while
// they come.
template <class Meanwhile>
__device__ inline void take_rows(const ChainProduct& now, int M, char* shared, const uint4 (&factors)[2], float* squares, Meanwhile meanwhile) {
  constexpr int threads = Chain::warps * 32, at_once = 3;  // pieces of a thread
  const int pieces = now.chunks * static_cast<int>(gemm_cuda_chunk) / 8, all = M * pieces;
  const auto at = [&](int row, int piece) { return reinterpret_cast<uint4*>(shared) + row * pieces + (piece ^ (row & 7)); };
  for (int first = static_cast<int>(threadIdx.x); first < max(all, threads); first += at_once * threads) {
    uint4 numbers[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (const int p = first + i * threads; p < all) numbers[i] = load_x(now.x + p / pieces * now.x_stride, p % pieces * 8, now.K);
    if (first < threads) meanwhile();
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (const int p = first + i * threads; p < all) *at(p / pieces, p % pieces) = numbers[i];
  }
  meet_multiplying();
  if (!now.norm.weight) return;
  norm_rows(at, M, now.K, now.norm.shape, now.norm.eps, factors, squares, threads, meet_multiplying);
  meet_multiplying();
}

template <int Depth, int Stages>
__global__ void __launch_bounds__(Chain::threads, 1) gemm_chain_kernel(const __grid_constant__ Chain chain) {
  using namespace hopper;
  using S = ChainStages<Depth>;
  constexpr int half = 8;
  extern __shared__ char unaligned[];
  __shared__ float squares[8 * RmsNormRows::most_warps];
  __shared__ ChainRing<Stages> rings[Chain::warps];
  char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), lane = static_cast<int>(threadIdx.x) % 32;
  if (warp < Chain::warps && lane < Stages) rings[warp].full[lane].init(32), rings[warp].empty[lane].init(32);
  let_next_start();
  __syncthreads();
  // w comes from outside of the step: it may be read before the kernel queued before has ended.
  if (warp >= Chain::warps) return fill_rings<Depth, Stages>(chain, rings, shared_address(shared), warp - Chain::warps, lane);

  const uint32_t ring = shared_address(shared) + static_cast<uint32_t>(warp * Stages * S::bytes);
  char* const x_shared = shared + Chain::warps * Stages * S::bytes;
  float* const all_sums = reinterpret_cast<float*>(x_shared + chain.x_bytes);
  // Rows of x beyond M are other rows, and what comes of them is dropped.
  const int M = chain.M, row = min(lane % 8, M - 1), g = lane / 4, t = lane % 4;
  GridMeeting grid{chain.barrier};
  uint32_t taken = 0;
#pragma unroll 1
  for (int p = 0; p < chain.count; ++p) {
    const ChainProduct& now = chain.products[p];
    uint4 factors[2];
    if (now.norm.weight)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = (static_cast<int>(threadIdx.x) + i * Chain::warps * 32) * 8;
        factors[i] = at < now.K ? *reinterpret_cast<const uint4*>(now.norm.weight + at) : uint4{};
      }
    if (p == 0) {
      wait_for_previous();
      if (threadIdx.x == 0) grid.look();
    } else {
      meet_multiplying();
      if (threadIdx.x == 0) grid.enter(), grid.wait();
      meet_multiplying();
    }
    const int slot = warp / now.warps, first_chunk = warp - slot * now.warps, thread = first_chunk * 32 + lane;
    const int threads = min(now.warps, Chain::warps - slot * now.warps) * 32;  // the last slot may lack warps: it has no strips
    const int chunks = now.chunks, strips = slot < now.slots ? now.strips : 0, sums_size = chunks * M * 2 * half;  // of a strip
    const uint32_t x_row = shared_address(x_shared) + static_cast<uint32_t>(row * chunks * static_cast<int>(gemm_cuda_chunk) * 2);
    float* to = all_sums + slot * 2 * sums_size;
    // A chunk's sums of the strip whose stages come next.
    const auto sum_chunk = [&](int chunk) {
      float d[4] = {};
#pragma unroll 1
      for (int stage = 0; stage < S::a_chunk; ++stage) {
        const uint32_t place = taken % Stages;
        rings[warp].full[place].wait(taken / Stages & 1);
        const uint32_t from = ring + place * S::bytes + static_cast<uint32_t>(lane % 16 * 128);
        const int piece = (chunk * static_cast<int>(gemm_cuda_chunk) + stage * Depth) / 8 + lane / 8;
#pragma unroll
        for (int s = 0; s < Depth / 16; s += 2) {
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
        if (2 * t + e % 2 < M) to[(chunk * M + 2 * t + e % 2) * 2 * half + g + e / 2 * 8] = d[e];
    };
    const auto multiply = [&]<class Output>(const Output& output) {
      constexpr int most = half * 8 / 32;  // pairs of a thread
      typename Output::template Extra<1> extra[most];
      const auto fetch = [&](int strip) {
        if (strip >= strips) return;
#pragma unroll
        for (int i = 0; i < most; ++i)
          if (const int e = thread + i * threads; e < half * M) extra[i] = output.template fetch<half, 1>(e / half, strip, e % half);
      };
      const int first = slot * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x), step = now.slots * static_cast<int>(gridDim.x);
      take_rows(now, M, x_shared, factors, squares, [&] { fetch(first); });
      int odd = 0;
      // All slots meet as often as the first, which has most strips: racecheck of compute-sanitizer loses its way where they do not.
#pragma unroll 1
      for (int strip = first, of_first = static_cast<int>(blockIdx.x); of_first < now.strips;
           strip += step, of_first += step, odd ^= 1, to += odd ? sums_size : -sums_size) {
        if (strip > first) fetch(strip);
        if (strip < strips)
#pragma unroll 1
          for (int chunk = first_chunk; chunk < chunks; chunk += now.warps) sum_chunk(chunk);
        meet_warps(slot + 1, threads);
        if (strip >= strips) continue;
        const auto total = [&](int m, int r) {
          float sum = to[m * 2 * half + r];
          for (int c = 1; c < chunks; ++c) sum += to[(c * M + m) * 2 * half + r];
          return sum;
        };
#pragma unroll
        for (int i = 0; i < most; ++i) {
          const int e = thread + i * threads, m = e / half, r = e % half;
          if (e >= half * M) continue;
          const float first_total[1] = {total(m, r)}, second_total[1] = {total(m, r + half)};
          output.template store<half, 1>(first_total, second_total, extra[i], m, strip, r);
        }
      }
    };
    if (p == 1)
      multiply(chain.gated);
    else if (p == 3)
      multiply(chain.heads);
    else
      multiply(p == 0 ? chain.output : chain.down);
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
    product.warps = warps, product.slots = slots;
  }
}

}  // namespace hone
