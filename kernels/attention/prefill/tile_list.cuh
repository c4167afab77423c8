#pragma once
// The tiles of a packed call as a list in device memory: each has some rows of one sequence; those with the most keys
// come first, so that blocks of threads that take the next as they get free end together. Only the device knows the
// sequences, so the list is made there.
#include "kernels/attention/call.cuh"
#include "kernels/attention/wgmma.cuh"
#include "kernels/cuda/pdl.cuh"

namespace hone::attention {

struct TileList {
  int* taken;   // of tiles x heads so far
  int* count;   // of tiles
  int* cursor;  // [levels]: where each level's tiles go; level l has rows l * rows and on
  int4* tiles;  // row, begin and length of a listed tile
};

struct ListedTile {
  int row, begin, length, head;  // first row within the sequence (-1: there are no more tiles), where the sequence lies
};

// The tile at a place of the list x heads. Some heads at a time, so that their keys and values stay in the L2 cache; of
// these all tiles.
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

// Inclusive sum over the 1024 threads of a block; shared holds 32 numbers.
__device__ inline int sum_up_to(int x, int* shared) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(0xffffffffu, x, step);
    if (lane >= step) x += below;
  }
  __syncthreads();
  if (lane == 31) shared[warp] = x;
  __syncthreads();
  return x + __reduce_add_sync(0xffffffffu, lane < warp ? shared[lane] : 0);
}

// One block of 1024 threads. `levels` is enough for the longest sequence.
template <class T>
__global__ void __launch_bounds__(1024) list_tiles(TileList list, AttentionCall<T> call, int levels, int rows) {
  sm90::griddep_wait();
  sm90::griddep_launch_dependents();
  __shared__ int sums[32], last[2];
  const int thread = static_cast<int>(threadIdx.x);
  const auto tiles_of = [&](int s) { return (call.offsets[s + 1] - call.offsets[s] + rows - 1) / rows; };
  for (int level = thread; level < levels; level += 1024) list.cursor[level] = 0;
  __syncthreads();
  for (int s = thread; s < call.sequences; s += 1024)
    if (const int tiles = tiles_of(s); tiles > 0) atomicAdd(&list.cursor[tiles - 1], 1);
  __syncthreads();
  // From the last level down: a level has a tile of each sequence that ends there or later, and lies behind the levels
  // above.
  int sequences_above = 0, tiles_above = 0;
  for (int base = levels - 1; base >= 0; base -= 1024) {
    const int level = base - thread;
    const int sequences = sequences_above + sum_up_to(level >= 0 ? list.cursor[level] : 0, sums);
    const int end = tiles_above + sum_up_to(level >= 0 ? sequences : 0, sums);
    if (level >= 0) list.cursor[level] = end - sequences;
    if (thread == 1023) last[0] = sequences, last[1] = end;
    __syncthreads();
    sequences_above = last[0], tiles_above = last[1];
  }
  if (thread == 0) *list.count = tiles_above, *list.taken = 0;
  for (int s = thread / 32; s < call.sequences; s += 32) {
    const int begin = call.offsets[s], length = call.offsets[s + 1] - begin;
    for (int level = thread % 32; level * rows < length; level += 32)
      list.tiles[atomicAdd(&list.cursor[level], 1)] = make_int4(level * rows, begin, length, 0);
  }
}

// Room for it, until the caller's ScratchScope ends, and the kernel that makes it.
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
