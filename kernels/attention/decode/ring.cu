// attention_paged for bf16 on any GPU: decoded sequences by the ring kernel with tiles loaded by cp.async, prefill
// chunks by prefill/tiles.cu.
//
// Use       bf16 where decode_sm90.cu does not apply.
// Tile      ring.cuh.
// Roles     ring.cuh, with two producer warps; each copies half of the keys of every tile.
// Pipeline  ring of 64 KB, or 36 KB (32 KB for D = 64) for N = 1 and D <= 128 unless alone; stages of 8 KB, or 4 KB for
//           N = 1, D = 128 unless alone.
// Smem      74 to 87 KB; for N = 1 and D <= 128 unless alone 42 to 50 KB (2 blocks per SM of 100 KB, 3 of 164 KB).
// Numerics  numerics.cuh.
// PDL       ring.cuh.
// Limits    ring.cuh.
#include "kernels/attention/decode/ring.cuh"
#include "kernels/cuda/launch_plan.h"

namespace hone::attention {
namespace {

struct AsyncSource {
  using Barrier = Mbarrier;
  static constexpr int producers = 2, full_arrivals = 32 * producers, small_blocks = 3, alone_bytes = 64 * 1024,
                       small_bytes = 36 * 1024, large_bytes = 64 * 1024;
  int box_shift;

  __device__ void prepare() const {}

  // Eight lanes copy the 128 bytes of a key. Columns past the head are zero. Masked keys are not read.
  template <int tile_keys>
  __device__ void copy(char* stage, Barrier& full, const uint32_t* slots, const AttentionCall<Bf16>& call,
                       const DecodeTile& tile, bool values, int begin, int part, int producer) const {
    const int lane = static_cast<int>(threadIdx.x % 32), unit = lane % 8, column = 64 * part + 8 * unit;
    const bool in_head = column < call.dim;
    const Bf16* const from = (values ? call.v : call.k) + tile.kv_head * call.dim + (in_head ? column : 0);
    const int64_t stride = values ? call.v_stride : call.k_stride;
    const uint32_t to = shared_address(stage), in_box = (1u << box_shift) - 1;
#pragma unroll
    for (int i = 0; i < tile_keys; i += 4 * producers) {
      const int row = i + 4 * producer + lane / 8, key = begin + row;
      const bool inside = in_head && key >= tile.low && key <= tile.high;
      const uint32_t slot = inside ? slots[key >> box_shift] + (static_cast<uint32_t>(key) & in_box) : 0;
      cp_async(to + static_cast<uint32_t>(row * 128 + (unit ^ (row & 7)) * 16), from + int64_t{slot} * stride, inside);
    }
    full.arrive_after_copies();
  }
};

void decode(cudaStream_t stream, const AttentionCall<Bf16>& call, const SplitPartials& partials, const PagedKv&,
            int octets) {
  const AsyncSource source{std::countr_zero(ring_box_keys(call.block_size))};
  with_ring(call, partials, octets, [&](auto width, auto n, auto alone) {
    launch_ring<width(), n(), alone()>(stream, call, partials, source);
  });
}

[[maybe_unused]] const bool added = attention_paged.add(
    {"mma", DeviceKind::cuda,
     [](Context& context, const AttentionPaged& args) { run_attention_paged(context, args, decode); }, 10,
     [](const AttentionPaged& args) { return args.shape.softcap == 0 && has_units(args.q); }});

template <int D, int N, bool alone>
void plan(LaunchPlans& out) {
  using P = DecodePlan<D, N, alone, AsyncSource>;
  out.add(concat("ring_kernel D = ", D, ", N = ", N, alone ? ", alone" : ""), ring_kernel<D, N, alone, AsyncSource>,
          P::threads, ring_bytes<P>(1));
}
[[maybe_unused]] const bool planned =
    launch_plans().add("attention_paged.mma", [](const DeviceLimits&, LaunchPlans& out) {
      const auto both = [&]<int D, int N>() {
        plan<D, N, true>(out);
        plan<D, N, false>(out);
      };
      both.operator()<64, 1>();
      both.operator()<64, 2>();
      both.operator()<128, 1>();
      both.operator()<128, 2>();
      both.operator()<256, 1>();
      both.operator()<256, 2>();
    });

}  // namespace
}  // namespace hone::attention
