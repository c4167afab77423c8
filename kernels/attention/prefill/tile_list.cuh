#pragma once
// The tile list of a packed call, in global memory: which rows of which sequence, the tiles with the most keys first.
// Thread blocks that claim the next tile when they are free then finish together. Only the device knows the sequences,
// so a kernel makes the list.
//
// Use       list_tiles, before an attention kernel whose thread blocks claim tiles (prefill_sm90.cu, backward/mma.cu).
// Tile      one block of 1024 threads; level l holds the tiles that start at row l * rows of their sequence.
// Roles     counting and prefix sums: all threads. Listing: one warp per sequence.
// Pipeline  none.
// Smem      static, 136 bytes.
// Numerics  integers. The order within a level is open (atomicAdd); no result depends on it.
// PDL       waits, then triggers dependents, both at the start.
// Limits    any number of sequences and levels; `levels` covers the longest sequence.
#include "kernels/attention/call.cuh"
#include "kernels/cuda/pdl.cuh"

namespace hone::attention {

struct TileList {
  int* claimed;  // number of (tile, head) pairs claimed so far
  int* count;    // number of tiles
  int* cursor;   // [levels]: list index of the next tile of each level
  int4* tiles;   // row, begin, length and index of the sequence of a listed tile
};

struct ListedTile {
  int row, begin, length, head;  // first row within the sequence (-1: no tile is left); the sequence's tokens
};

// The pair at index `place` of the list x heads. A few heads at a time run over all tiles, so that their keys and
// values stay in the L2 cache.
template <class T>
__device__ ListedTile listed_tile(const TileList& list, const AttentionCall<T>& call, int count, int heads_together,
                                  int place) {
  const int heads = call.kv_heads * call.group;
  if (place >= count * heads) return {-1, 0, 0, 0};
  const int first_head = place / (count * heads_together) * heads_together;
  const int num_heads = min(heads_together, heads - first_head), rest = place - count * first_head;
  const int4 tile = list.tiles[rest / num_heads];
  return {tile.x, tile.y, tile.z, first_head + rest % num_heads};
}

// Inclusive prefix sum over the 1024 threads of a block. shared holds 32 ints.
__device__ inline int sum_up_to(int x, int* shared) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(0xffffffffu, x, step);
    if (lane >= step) x += below;
  }
  __syncthreads();  // all warps have read `shared` of the call before
  if (lane == 31) shared[warp] = x;
  __syncthreads();  // the sums of all warps are in `shared`
  return x + __reduce_add_sync(0xffffffffu, lane < warp ? shared[lane] : 0);
}

// One block of 1024 threads. `levels` is enough for the longest sequence.
template <class T>
__global__ void __launch_bounds__(1024) list_tiles(TileList list, AttentionCall<T> call, int levels, int rows) {
  hopper::griddep_wait();
  hopper::griddep_launch_dependents();
  __shared__ int sums[32], last[2];
  const int thread = static_cast<int>(threadIdx.x);
  const auto tiles_of = [&](int s) { return (call.offsets[s + 1] - call.offsets[s] + rows - 1) / rows; };
  for (int level = thread; level < levels; level += 1024) list.cursor[level] = 0;
  __syncthreads();  // counters are zero
  // Count the sequences that end in each level.
  for (int s = thread; s < call.sequences; s += 1024)
    if (const int tiles = tiles_of(s); tiles > 0) atomicAdd(&list.cursor[tiles - 1], 1);
  __syncthreads();  // counts are complete
  // Levels from last to first: a level has a tile of each sequence that ends there or later. Its tiles come after those
  // of the higher levels.
  int sequences_above = 0, tiles_above = 0;
  for (int base = levels - 1; base >= 0; base -= 1024) {
    const int level = base - thread;
    const int sequences = sequences_above + sum_up_to(level >= 0 ? list.cursor[level] : 0, sums);
    const int end = tiles_above + sum_up_to(level >= 0 ? sequences : 0, sums);
    if (level >= 0) list.cursor[level] = end - sequences;
    if (thread == 1023) {
      last[0] = sequences;
      last[1] = end;
    }
    __syncthreads();  // last[] is written; cursor[] of these levels is complete
    sequences_above = last[0];
    tiles_above = last[1];
  }
  if (thread == 0) {
    *list.count = tiles_above;
    *list.claimed = 0;
  }
  // List the tiles of each sequence.
  for (int s = thread / 32; s < call.sequences; s += 32) {
    const int begin = call.offsets[s], length = call.offsets[s + 1] - begin;
    for (int level = thread % 32; level * rows < length; level += 32)
      list.tiles[atomicAdd(&list.cursor[level], 1)] = make_int4(level * rows, begin, length, s);
  }
}

// Queues the kernel. The list lives in scratch memory until the caller's ScratchScope ends.
template <class T>
TileList make_list(Context& context, const AttentionCall<T>& call, int rows) {
  const int levels = (call.tokens + rows - 1) / rows;
  int* counters = static_cast<int*>(context.scratch().take(DType::i32, {2 + levels}).data);
  const TileList list{
      counters, counters + 1, counters + 2,
      static_cast<int4*>(
          context.scratch().take(DType::i32, {4 * (int64_t{call.tokens} / rows + call.sequences)}).data)};
  launch_pdl(cuda_stream(context), list_tiles<T>, dim3(1), 1024, 0, 1, list, call, levels, rows);
  return list;
}

}  // namespace hone::attention
