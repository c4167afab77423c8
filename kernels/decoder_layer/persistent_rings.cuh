#pragma once
// The rings of the persistent kernel of a layer (persistent.cuh): which weights a warp consumes in which order, and the
// copy warps that fetch them. Only .cu and .cuh files include it.
#include <utility>

#include "kernels/decoder_layer/persistent_gemm.cuh"

namespace hone {

// The stages of a warp's ring in the order in which it consumes them: GEMM after GEMM, N tile after N tile, chunk after
// chunk. A lane copies 16 bytes of every other row. Rows of experts are looked up by the first copy() that needs them.
template <class Layer>
class WeightStages {
 public:
  static constexpr int depth = 128, bytes = 16 * depth * 2,
                       a_chunk = static_cast<int>(gemm_cuda_chunk) / depth;  // depth: K extent; a_chunk: stages

  __device__ WeightStages(const Layer& chain, const PersistentRouting& routing, int warp, int lane)
      : chain_(chain), routing_(routing), warp_(warp), piece_(lane % a_row), row_(lane / a_row) {
    enter();
  }
  __device__ int product() const { return product_; }  // chain.count past the last stage
  __device__ void next() {
    if (++stage_ < a_chunk) return;
    const PersistentGemm& now = chain_.products[product_];
    stage_ = 0;
    chunk_ += now.warps;
    if (chunk_ < now.chunks) {
      if (Layer::routes && now.chunks_of_choices) found_ = false;
      return;
    }
    chunk_ = first_chunk_;
    n_tile_ += now.tile_slots * static_cast<int>(gridDim.x);
    n_tile_ < n_tiles_ ? find_rows() : enter();
  }
  // Copied by a full warp in the layout of copy_n_tile(): rows past N repeat the last row. `to` is a multiple of 128.
  __device__ void copy(uint32_t to) {
    const PersistentGemm& now = chain_.products[product_];
    if (Layer::routes && !found_) find_expert_rows();
    const int chunk = Layer::routes && now.chunks_of_choices ? chunk_ % now.row_chunks : chunk_;
    const int column = chunk * static_cast<int>(gemm_cuda_chunk) + stage_ * depth,
              count = column + piece_ * 8 < now.K ? 16 : 0;
    const __nv_bfloat16* const from = count > 0 ? w_ + column : now.w;
    to += static_cast<uint32_t>(piece_ / 8 * (16 * 128) + row_ * 128 + ((piece_ % 8 ^ row_) << 4));
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const int row = (half == 0 ? row_ranges_.x : row_ranges_.y) + row_;
#pragma unroll
      for (uint32_t r = 0; r < 8; r += together)
        cp_async_streaming((to ^ r << 4) + (half * 8 + r) * 128,
                           from + min(row + static_cast<int>(r), now.N - 1) * now.w_stride, count);
    }
  }

 private:
  static constexpr int a_row = depth / 8, together = 32 / a_row;  // lanes per row; rows per copy

  // Enters the next GEMM of which this warp has a part.
  __device__ void enter() {
    while (++product_ < chain_.count) {
      const PersistentGemm& now = chain_.products[product_];
      const int slot = warp_ / now.warps;
      first_chunk_ = chunk_ = warp_ - slot * now.warps;
      n_tile_ = slot * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
      n_tiles_ = now.n_tiles;
      if (slot < now.tile_slots && n_tile_ < n_tiles_) return find_rows();
    }
  }
  __device__ void find_rows() {
    const PersistentGemm& now = chain_.products[product_];
    found_ = !(Layer::routes && now.routed());
    if (found_) set_rows(now, now.w, n_tile_);
  }
  __device__ void find_expert_rows() {
    const PersistentGemm& now = chain_.products[product_];
    const int choice = now.chunks_of_choices ? chunk_ / now.row_chunks : n_tile_ / now.choice_tiles,
              tile = now.chunks_of_choices ? n_tile_ : n_tile_ - choice * now.choice_tiles;
    set_rows(now, now.w + routing_.experts[choice] * now.matrix, tile);
    found_ = true;
  }
  __device__ void set_rows(const PersistentGemm& now, const __nv_bfloat16* w, int tile) {
    row_ranges_ = now.row_ranges.of(tile);
    w_ = w + piece_ * 8;
  }

  const Layer& chain_;
  const PersistentRouting& routing_;
  int warp_, piece_, row_;
  int product_ = -1, n_tile_ = 0, n_tiles_ = 0, first_chunk_ = 0, chunk_ = 0, stage_ = 0;
  bool found_ = false;
  int2 row_ranges_{};                 // first rows of the N tile's two ranges
  const __nv_bfloat16* w_ = nullptr;  // this lane's columns of row 0
};
inline constexpr int ring_stage_bytes = 16 * 128 * 2;

// mbarriers of one warp's ring.
template <int Stages>
struct WeightPipeline {
  Mbarrier full[Stages], empty[Stages];
};

// Body of copy warp `index`: fills its share of the rings, each one stage further whenever a stage is empty. No ring
// advances to the next GEMM while another lacks stages of this one: its copies would delay those.
template <class Layer, int Stages, int Copying, int... i>
__device__ inline void fill_rings(const Layer& chain, const PersistentRouting& routing, WeightPipeline<Stages>* rings,
                                  uint32_t memory, int index, int lane, std::integer_sequence<int, i...>) {
  using WeightStages = WeightStages<Layer>;
  WeightStages stages[] = {WeightStages(chain, routing, index + i * Copying, lane)...};
  uint32_t filled[sizeof...(i)] = {};
  const auto earliest = [&] {
    int product = INT_MAX;
    ((product = min(product, stages[i].product())), ...);
    return product;
  };
  const auto copy = [&](WeightStages& stage, uint32_t& number, int warp, int product) {
    const uint32_t place = number % Stages;
    if (stage.product() > product || !__all_sync(0xffffffffu, rings[warp].empty[place].done((number / Stages & 1) ^ 1)))
      return;
    stage.copy(memory + (static_cast<uint32_t>(warp) * Stages + place) * WeightStages::bytes);
    rings[warp].full[place].arrive_after_copies();
    ++number;
    stage.next();
  };
  bool waited = !Layer::routes;
  for (int product = earliest(); product < chain.count; product = earliest()) {
    if (!waited && chain.products[product].routed()) {
      routing.chosen->wait(0);  // the experts are chosen
      waited = true;
    }
    (copy(stages[i], filled[i], index + i * Copying, product), ...);
  }
}

}  // namespace hone
