#pragma once
// Epilogues of wgmma.cuh for pairs (outputs.cuh): both elements of a pair are among one thread's totals.
#include "kernels/decoder_layer/outputs.cuh"
#include "kernels/gemm/sm90/wgmma.cuh"

namespace hone {

struct GemmPairStore {
  static constexpr int shared_bytes(int) { return 0; }
  static constexpr int column_bytes(int) { return 0; }
  template <int Columns>
  __device__ void begin(const GemmPart&, int, int) const {}
  __device__ void end(const GemmPart&) const {}

 protected:
  // Columns [first, first + half) of the warpgroup's part and the next `half` are the two row ranges of `tile`.
  template <int half, int first, int size, class Output>
  static __device__ void store_runs(const Output& to, const GemmPart& part, const float (&total)[size], int m, int M,
                                    int tile) {
    const int row = m + part.thread / 32 * 16 + part.thread % 32 / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row + 8 * h >= M) continue;
#pragma unroll
      for (int j = 0; j < half / 8; ++j) {
        const float one[2] = {total[first / 2 + 4 * j + 2 * h], total[first / 2 + 4 * j + 2 * h + 1]};
        const float other[2] = {total[(first + half) / 2 + 4 * j + 2 * h],
                                total[(first + half) / 2 + 4 * j + 2 * h + 1]};
        const int r = 8 * j + part.thread % 4 * 2;
        to.template store<half, 2>(one, other, to.template fetch<half, 2>(row + 8 * h, tile, r), row + 8 * h, tile, r);
      }
    }
  }
};

struct SwigluStore : GemmPairStore {
  SwigluEpilogue to;
  int up_row, M;
  SwigluStore(const SwigluEpilogue& to_, int rows) : to(to_), up_row(to_.F), M(rows) {}
  template <int Columns>
  __device__ void finish(const GemmPart& part, float (&total)[Columns / 2], int m, int n) const {
    store_runs<Columns / 2, 0>(to, part, total, m, M, n / Columns);
  }
};

// Tiles of 128 columns; head dimension 64 or 128.
struct QkvRopeStore : GemmPairStore {
  QkvRopeEpilogue to;
  int M;
  QkvRopeStore(const QkvRopeEpilogue& to_, int rows) : to(to_), M(rows) {}
  template <int Columns>
  __device__ void finish(const GemmPart& part, float (&total)[Columns / 2], int m, int n) const {
    static_assert(Columns == 128);
    if (to.dim == 128) return store_runs<64, 0>(to, part, total, m, M, n / 128);
    store_runs<32, 0>(to, part, total, m, M, n / 64);
    store_runs<32, 64>(to, part, total, m, M, n / 64 + 1);
  }
};

}  // namespace hone
