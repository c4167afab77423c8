// latent_attention_forward and latent_attention_paged for bf16 on Hopper: the kernel of tiles.cuh with wgmma.
//
// Use       bf16 with 16-byte aligned rows. Calls with at most 16 rows per sequence run the mma.sync plan.
// Tile      64 query rows by key blocks of 64 (tiles.cuh).
// Roles     2 warpgroups. Scores: a warpgroup has all rows and half of the keys. p . v: all rows and 256 columns.
// Pipeline  2 smem stages of 64 latent rows (tiles.cuh).
// Smem      dynamic, 226 KB: HopperLatentPlan::bytes. q and latents as tiles of 64 columns with the 128-byte swizzle
//           (kernels/cuda/hopper.cuh), one after the other.
// Numerics  tiles.cuh: the bits of the mma.sync plans.
// PDL       none.
// Limits    sm_90a; as tiles.cuh.
#include "kernels/attention/latent/bodies.cuh"
#include "kernels/attention/wgmma.cuh"

namespace hone::attention {
namespace {

struct HopperLatentPlan : LatentPlanBase<4, 2> {
  using Base = LatentPlanBase<4, 2>;
  static constexpr int sum_fragments = 1, sum_tiles = 32;  // a warp's sums: 16 rows and 256 columns
  static constexpr uint32_t panel_bytes = 64 * 128;        // 64 columns of 64 rows
  static_assert(Base::rows == 64 && latent_keys == 64 && Base::warp_keys == 32);

  static __device__ bool has_values(int, int) { return true; }
  static __device__ int first_row(int warp) { return warp % 4 * 16; }
  static __device__ int first_column(int warp) { return warp / 4 * 256; }
  static __device__ uint32_t place(uint32_t tile, int row, int unit) {
    return tile + static_cast<uint32_t>(unit / 8) * panel_bytes +
           static_cast<uint32_t>(row * 128 + ((unit % 8 ^ (row & 7)) << 4));
  }
  // The copies are ordinary writes; wgmma reads them through the async proxy.
  static __device__ void await_copies() {
    cp_async_wait<0>();
    sm90::fence_async_proxy();
  }

  // All warps of a warpgroup have the same first_key; each gets its own 16 rows.
  static __device__ void scores(float (&s)[4][4], uint32_t q, uint32_t stage, int, int first_key, int padded_units,
                                int) {
    auto& sum = reinterpret_cast<float(&)[16]>(s);
#pragma unroll
    for (float& x : sum) x = 0;
    const uint64_t rows = sm90::smem_descriptor(q),
                   keys = sm90::smem_descriptor(stage + static_cast<uint32_t>(first_key) * 128);
    sm90::wgmma_fence_registers(sum);
    sm90::wgmma_fence();
#pragma unroll 4
    for (int step = 0; step < padded_units / 2; ++step) {
      const auto at = static_cast<uint32_t>(step / 4) * panel_bytes + static_cast<uint32_t>(step % 4) * 32;
      sm90::wgmma_ss(sum, sm90::further(rows, at), sm90::further(keys, at), true);
    }
    sm90::wgmma_commit();
    sm90::wgmma_wait<0>();
    sm90::wgmma_fence_registers(sum);
  }

  // Columns from the rank on are computed from whatever lies there, and never stored.
  static __device__ void add_values(float (&o)[sum_fragments][sum_tiles][4], uint32_t p_tile, uint32_t stage, int,
                                    int warp, int lane) {
    auto& low = reinterpret_cast<float(&)[64]>(o[0][0]);
    auto& high = reinterpret_cast<float(&)[64]>(o[0][sum_tiles / 2]);
    uint32_t p[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) ldmatrix_x4(p[k], left_at<8>(p_tile, first_row(warp), 2 * k, lane));
    const int column = first_column(warp);
    const uint64_t values =
        sm90::smem_descriptor(stage + static_cast<uint32_t>(column / 64) * panel_bytes, panel_bytes);
    sm90::wgmma_fence_registers(low);
    sm90::wgmma_fence_registers(high);
#pragma unroll
    for (int k = 0; k < 4; ++k) sm90::wgmma_fence_registers(p[k]);
    sm90::wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
      sm90::wgmma_rs(low, p[k], sm90::further(values, k * 2048), true);
      sm90::wgmma_rs(high, p[k], sm90::further(values, 2 * panel_bytes + k * 2048), true);
    }
    sm90::wgmma_commit();
    sm90::wgmma_wait<0>();
    sm90::wgmma_fence_registers(low);
    sm90::wgmma_fence_registers(high);
  }
};

struct HopperPlans {
  template <class Body>
  static void with(const DeviceLimits&, bool few_rows, Body body) {
    if (few_rows) return body(LatentPlan<1, 2>{});
    body(HopperLatentPlan{});
  }
};

[[maybe_unused]] const bool added =
    latent_attention_forward.add(
        {"sm90", DeviceKind::cuda, run_latent_forward<HopperPlans>, 20,
         [](const LatentAttentionForward& args) { return has_latent_units(args.out, args.q) && runs_hopper_bodies(); },
         latent_forward_scratch<HopperPlans>}) &&
    latent_attention_paged.add(
        {"sm90", DeviceKind::cuda, run_latent_paged<HopperPlans>, 20,
         [](const LatentAttentionPaged& args) { return has_latent_units(args.out, args.q) && runs_hopper_bodies(); },
         latent_paged_scratch<HopperPlans>});

}  // namespace
}  // namespace hone::attention
