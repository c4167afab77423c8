// The routing of a few tokens in one launch: router_forward and moe_dispatch for the body "few_rows" of routed_experts.
//
// Use       at most max_few_choices choices.
// Tile      one thread block for all tokens.
// Roles     up to 32 warps choose experts, one token each at a time (router_choice.cuh); warp 0 sorts the choices.
// Pipeline  none.
// Smem      dynamic: P choices, E counters, and per warp RouterShape::words_per_warp() words; at most 48 KB.
// Numerics  the bits of router_forward. The order of the choices is that of moe_dispatch.
// PDL       triggers dependents at the start; griddep_wait() before the logits are read.
// Limits    one warp's words fit 48 KB.
#include "kernels/cuda/pdl.cuh"
#include "kernels/moe/few_rows.cuh"
#include "kernels/moe/router_choice.cuh"

namespace hone::moe {
namespace {

// Warp 0: writes the tiles, and replaces each expert's number of choices in `next` by its first position.
__device__ void write_tiles(const FewRouting& to, int32_t* next, int E, int tile_rows, int lane) {
  int before = 0, tiles = 0;  // positions and tiles of earlier experts
  for (int first = 0; first < E; first += 32) {
    const int e = first + lane, count = e < E ? next[e] : 0, own = (count + tile_rows - 1) / tile_rows;
    int sum = count | own << 16;  // both are at most max_few_choices
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    const int start = before + (sum & 0xffff) - count, tile = tiles + (sum >> 16) - own;
    for (int i = 0; i < own; ++i)
      to.tiles[tile + i] = make_int4(e, start + i * tile_rows, min(tile_rows, count - i * tile_rows), 0);
    if (e < E) next[e] = start;
    const int last = __shfl_sync(0xffffffffu, sum, 31);
    before += last & 0xffff;
    tiles += last >> 16;
  }
  if (lane == 0) *to.num_tiles = tiles;
  __syncwarp();  // the first positions of all experts are stored
}

// Warp 0: the position of each choice, among those of one expert in the order of the choices.
__device__ void write_places(const FewRouting& to, const int32_t* chosen, int32_t* next, int P, int k, int lane) {
  for (int first = 0; first < P; first += 32) {
    const int i = first + lane, e = i < P ? chosen[i] : -1;
    const unsigned same = __match_any_sync(0xffffffffu, e);
    const int rank = __popc(same & ((1u << lane) - 1)), base = e >= 0 ? next[e] : 0;
    __syncwarp();  // all lanes have read the positions
    if (e >= 0 && rank == 0) next[e] = base + __popc(same);
    __syncwarp();  // the positions are stored
    if (e < 0) continue;
    to.places[i] = base + rank;
    to.tokens[base + rank] = i / k;
  }
}

__global__ void __launch_bounds__(1024)
    route_kernel(FewRouting to, const float* logits, const float* bias, RouterShape s, int tile_rows) {
  extern __shared__ uint32_t shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            threads = static_cast<int>(blockDim.x), tokens = static_cast<int>(s.tokens), k = s.num_choices,
            P = tokens * k, E = s.num_experts;
  int32_t* const chosen = reinterpret_cast<int32_t*>(shared);  // [P]
  int32_t* const next = chosen + P;                            // [E]
  uint32_t* const memory = shared + P + E + warp * s.words_per_warp();
  hopper::griddep_launch_dependents();
  for (int e = static_cast<int>(threadIdx.x); e < E; e += threads) next[e] = 0;
  hopper::griddep_wait();  // the logits are written
  for (int t = warp; t < tokens; t += threads / 32)
    route_token(chosen + t * k, to.weights + t * k, {logits + t * s.logits_stride, E, lane}, bias, memory, s);
  __syncthreads();  // all choices and zeros are stored
  for (int i = static_cast<int>(threadIdx.x); i < P; i += threads) atomicAdd(next + chosen[i], 1);
  __syncthreads();  // all choices are counted
  if (warp > 0) return;
  write_tiles(to, next, E, tile_rows, lane);
  write_places(to, chosen, next, P, k, lane);
}

}  // namespace

bool route_few(Context& context, const RoutedExperts& args, const FewRouting& to, int tile_rows) {
  constexpr int64_t most_words = 48 * 1024 / sizeof(uint32_t);
  const int64_t T = args.x.dim(0), E = args.logits.dim(1), k = args.num_choices;
  // The strides of experts and weights do not matter: the kernel packs them.
  const RouterShape s = router_shape(args.logits, Tensor(nullptr, DType::i32, args.x.device, {T, k}),
                                     Tensor(nullptr, DType::f32, args.x.device, {T, k}), args.bias, args.rule);
  const int64_t fixed = T * k + E, warps = std::min({int64_t{32}, T, (most_words - fixed) / s.words_per_warp()});
  if (warps < 1) return false;
  const int64_t bytes = (fixed + warps * s.words_per_warp()) * static_cast<int64_t>(sizeof(uint32_t));
  launch_pdl(cuda_stream(context), route_kernel, dim3(1), static_cast<int>(32 * warps), static_cast<int>(bytes), 1, to,
             numbers<const float>(args.logits), args.bias ? numbers<const float>(args.bias) : nullptr, s, tile_rows);
  return true;
}

}  // namespace hone::moe
