#pragma once
// Epilogues of wgmma.cuh that write y as gemm_forward does.
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/sm90/wgmma.cuh"

namespace hone {

// Copies the bias of a tile's columns as f32 to the warpgroup's shared memory; zero past N.
template <int Columns>
__device__ void stage_bias(const GemmPart& part, const void* bias, bool bias_bf16, int n, int N) {
  for (int c = part.thread; c < Columns; c += 128)
    reinterpret_cast<float*>(part.columns)[c] = n + c < N ? GemmEpilogue::load(bias, bias_bf16, n + c) : 0;
}
template <int Columns>
__device__ void add_bias(const GemmPart& part, float (&total)[Columns / 2]) {
#pragma unroll
  for (int j = 0; j < Columns / 8; ++j) {
    const float2 add = reinterpret_cast<const float2*>(part.columns)[j * 4 + part.thread % 4];
    total[4 * j] += add.x;
    total[4 * j + 1] += add.y;
    total[4 * j + 2] += add.x;
    total[4 * j + 3] += add.y;
  }
}

// Stores from registers: any dtype, any alignment.
template <class Y>
struct GemmStore {
  GemmEpilogue to;
  int64_t M, N;
  bool pairs;  // y can be written two elements at a time

  static constexpr int shared_bytes(int) { return 0; }
  static constexpr int column_bytes(int columns) { return columns * 4; }  // f32 bias
  template <int Columns>
  __device__ void begin(const GemmPart& part, int, int n) const {
    if (to.bias) stage_bias<Columns>(part, to.bias, to.bias_bf16, n, static_cast<int>(N));
  }
  __device__ void end(const GemmPart&) const {}
  template <int Columns>
  __device__ void finish(const GemmPart& part, float (&total)[Columns / 2], int m, int n) const {
    const int row = m + part.thread / 32 * 16 + part.thread % 32 / 4, column = n + part.thread % 4 * 2;
    const bool inside = pairs && n + Columns <= N;
    if (to.bias) {
      hopper::named_barrier_sync(part.barrier_id, 128);  // the warpgroup has written the bias
      add_bias<Columns>(part, total);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t at = row + h * 8;
      if (at >= M) continue;
      Y* y = static_cast<Y*>(to.y) + at * to.y_stride + column;
#pragma unroll
      for (int j = 0; j < Columns / 8; ++j) {
        float first = total[4 * j + 2 * h], second = total[4 * j + 2 * h + 1];
        const bool has_first = inside || column + 8 * j < N, has_second = inside || column + 8 * j + 1 < N;
        if (to.residual) {
          const int64_t from = at * to.residual_stride + column + 8 * j;
          if (has_first) first += GemmEpilogue::load(to.residual, to.residual_bf16, from);
          if (has_second) second += GemmEpilogue::load(to.residual, to.residual_bf16, from + 1);
        }
        if (inside) {
          store_vec(y + 8 * j, {first, second});
        } else {
          if (has_first) y[8 * j] = from_f32<Y>(first);
          if (has_second) y[8 * j + 1] = from_f32<Y>(second);
        }
      }
    }
    if (to.bias) hopper::named_barrier_sync(part.barrier_id, 128);  // all have read it; the next tile overwrites it
  }
};

// Stores bf16 y through shared memory by TMA. TMA also loads the residual there while the tile's wgmmas run. y and
// residual are tma_compatible().
struct GemmStoreBox {
  CUtensorMap y_map, residual_map;
  const void* bias;
  int N;
  bool bias_bf16, has_residual;

  static constexpr int slab_bytes = 64 * 64 * 2;  // 64 columns of the warpgroup's 64 rows
  static constexpr int shared_bytes(int columns) { return columns / 64 * slab_bytes; }
  static constexpr int column_bytes(int columns) { return columns * 4; }  // f32 bias

  template <int Columns>
  __device__ void begin(const GemmPart& part, int m, int n) const {
    if (bias) stage_bias<Columns>(part, bias, bias_bf16, n, N);
    if (!has_residual || part.thread != 0) return;
    hopper::tma_store_wait();  // the stores of the tile before have read shared memory
    part.barrier->arrive_expect_tx(shared_bytes(Columns));
    for (int c = 0; c < Columns; c += 64)
      hopper::tma_load(part.shared + c / 64 * slab_bytes, residual_map, *part.barrier, n + c, m);
  }
  __device__ void end(const GemmPart& part) const {
    if (part.thread == 0) hopper::tma_store_wait();  // shared memory must live until the stores have read it
  }
  // Puts the warpgroup's rows of y into its shared memory; all threads see them, and so does TMA.
  template <int Columns>
  __device__ void place(const GemmPart& part, float (&total)[Columns / 2]) const {
    using namespace hopper;
    const int warp = part.thread / 32, lane = part.thread % 32;
    const int row = warp * 16 + lane / 8 % 2 * 8 + lane % 8;  // the row that this lane addresses for stmatrix_x4
    const uint32_t to = shared_address(part.shared) + static_cast<uint32_t>(row * 128);
    if (!has_residual && part.thread == 0) tma_store_wait();
    // The stores of the tile before have read shared memory; the bias is written.
    named_barrier_sync(part.barrier_id, 128);
    if (bias) add_bias<Columns>(part, total);
    if (has_residual) part.barrier->wait(part.round & 1);  // the residual has landed
#pragma unroll
    for (int j = 0; j < Columns / 8; j += 2) {
      const uint32_t at = to + static_cast<uint32_t>(j / 8 * slab_bytes + (((j % 8 + lane / 16) ^ (row & 7)) << 4));
      if (has_residual) {
        uint32_t r[4];
        ldmatrix_x4(at, r[0], r[1], r[2], r[3]);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          total[4 * j + 2 * e] += low_bf16(r[e]);
          total[4 * j + 2 * e + 1] += high_bf16(r[e]);
        }
      }
      stmatrix_x4(at, pack_bf16(total[4 * j], total[4 * j + 1]), pack_bf16(total[4 * j + 2], total[4 * j + 3]),
                  pack_bf16(total[4 * j + 4], total[4 * j + 5]), pack_bf16(total[4 * j + 6], total[4 * j + 7]));
    }
    fence_async_proxy();
    named_barrier_sync(part.barrier_id, 128);  // the warpgroup has written its 64 rows
  }
  template <int Columns>
  __device__ void finish(const GemmPart& part, float (&total)[Columns / 2], int m, int n) const {
    place<Columns>(part, total);
    store<Columns>(part, m, n);
  }
  template <int Columns>
  __device__ void store(const GemmPart& part, int m, int n) const {
    if (part.thread != 0) return;
    for (int c = 0; c < Columns; c += 64)
      if (n + c < N) hopper::tma_store(y_map, part.shared + c / 64 * slab_bytes, n + c, m);
    hopper::tma_store_commit();
  }
};

}  // namespace hone
