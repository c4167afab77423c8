// decode_advance on a GPU: the next decode pass's tokens, positions, slots and lengths, and the results for the host.
//
// Use       once per decode pass.
// Tile      one thread block for all sequences.
// Roles     512 threads, all alike.
// Pipeline  none.
// Smem      none.
// Numerics  integers.
// PDL       waits at the start; does not trigger dependents: the next pass reads lengths and keys ahead of its kernels.
// Limits    none.
#include "kernels/cuda/pdl.cuh"
#include "kernels/sampling/decode_advance.h"
#include "kernels/sampling/sample.h"

namespace hone {
namespace {

constexpr int threads = 512;  // in one block, because `turn` must change after all threads have read it

__global__ void __launch_bounds__(threads)
    advance(int32_t* tokens, int32_t* positions, int32_t* slots, int32_t* lengths, const int32_t* active,
            RowSamplingParams* params, const int32_t* ids, const int32_t* block_table, int64_t table_stride,
            int64_t table_width, int64_t block_size, int64_t count, int64_t num_slots, const int32_t* drawn,
            int64_t num_drawn, int32_t* ring, int64_t ring_stride, int ring_rows, int32_t* turn) {
  hopper::griddep_wait();  // the pass before has written ids and results
  const int32_t now = *turn;
  int32_t* const to = ring + now % ring_rows * ring_stride;
  for (int64_t i = threadIdx.x; i < num_drawn; i += threads) to[i] = drawn[i];
  for (int64_t s = threadIdx.x; s < count; s += threads) {
    if (!active[s]) continue;
    tokens[s] = max(ids[s], 0);
    const int64_t position = ++positions[s];
    ++lengths[s];
    ++params[s].position;
    const int64_t block = min(position / block_size, table_width - 1);
    for (int64_t row = s; row < num_slots; row += count)  // the sequence in each table
      slots[row] = static_cast<int32_t>(block_table[row * table_stride + block] * block_size + position % block_size);
  }
  __syncthreads();  // all threads have read `turn`
  if (threadIdx.x == 0) *turn = now + 1;
}

void run(Context& context, const DecodeAdvance& args) {
  const int64_t S = args.ids.dim(0);
  launch_pdl(cuda_stream(context), advance, dim3(1), threads, 0, 1, numbers<int32_t>(args.state.tokens),
             numbers<int32_t>(args.state.positions), numbers<int32_t>(args.state.slots),
             numbers<int32_t>(args.state.lengths), numbers<const int32_t>(args.state.active),
             numbers<RowSamplingParams>(args.state.params), numbers<const int32_t>(args.ids),
             numbers<const int32_t>(args.block_table), args.block_table.row_stride, args.block_table.dim(1),
             args.block_size, S, args.state.slots.dim(0), numbers<const int32_t>(args.results.drawn),
             args.results.drawn.dim(0), numbers<int32_t>(args.results.ring), args.results.ring.row_stride,
             static_cast<int>(args.results.ring.dim(0)), numbers<int32_t>(args.results.turn));
  check_launch(decode_advance);
}

[[maybe_unused]] const bool added = decode_advance.add({"block", DeviceKind::cuda, run});

}  // namespace
}  // namespace hone
