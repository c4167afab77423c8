// CUDA bodies of grouped_gemm_forward. A thread block computes a tile of one expert's rows with the code of the dense
// GEMM, so a row has the bits of gemm_forward.
//
// Use       "mma": bf16, 16-byte aligned rows. "tiles": every dtype and alignment.
// Tile      mma: 16 x 64, 64 x 64 or 128 x 128 by the rows per expert (gemm/mma/tiles.cuh). tiles: 64 x 64
//           (gemm/tiles.cuh). Blocks without a tile end at once.
// Roles     as the dense GEMM; each warp finds the tile by itself (group_tiles.cuh).
// Pipeline  as the dense GEMM. Consecutive blocks share the rows of x.
// Smem      as the dense GEMM.
// Numerics  as the dense GEMM. All tiles have the same bits, so the number of rows may choose one.
// PDL       plain launch; mma triggers dependents at the start.
// Limits    mma: rows of x and w 16-byte aligned; fewer than 2^31 rows and tiles.
#include "kernels/cuda/launch_plan.h"
#include "kernels/gemm/mma/tiles.cuh"
#include "kernels/gemm/tiles.cuh"
#include "kernels/moe/group_tiles.cuh"
#include "kernels/moe/grouped_gemm.h"

namespace hone {
namespace {

struct GroupShape {
  const int32_t* offsets;
  int num_experts, rows, n_tiles;
  int64_t matrix;  // elements from an expert's matrix to the next one's
};

__device__ inline void zero_tile(const GemmEpilogue& epilogue, const GroupTile& tile, int height, int column, int N,
                                 int width) {
  if (epilogue.y_bf16)
    store_zeros(static_cast<__nv_bfloat16*>(epilogue.y), epilogue.y_stride, tile.row, tile.end, height, column, N,
                width);
  else
    store_zeros(static_cast<float*>(epilogue.y), epilogue.y_stride, tile.row, tile.end, height, column, N, width);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    mma_kernel(const __nv_bfloat16* x, const __nv_bfloat16* w, int64_t x_stride, int64_t w_stride,
               GemmEpilogue epilogue, MmaShape shape, GroupShape groups) {
  const int number = static_cast<int>(blockIdx.x) / groups.n_tiles,
            column = static_cast<int>(blockIdx.x) % groups.n_tiles * Tile::columns;
  const GroupTile tile = find_group_tile(groups.offsets, groups.num_experts, groups.rows, Tile::rows, number);
  if (tile.expert < 0) return;
  if (tile.expert == groups.num_experts) {
    if (!epilogue.residual) zero_tile(epilogue, tile, Tile::rows, column, shape.N, Tile::columns);
    return;
  }
  shape.M = tile.end;
  mma_tile<Tile, false>(x, w + int64_t{tile.expert} * groups.matrix, x_stride, w_stride, epilogue, nullptr, shape,
                        tile.row, column, 0);
}

template <class T>
__global__ void __launch_bounds__(gemm_tile_threads<T>)
    tiles_kernel(GemmOperands<T> of, GemmEpilogue epilogue, GroupShape groups) {
  const int number = static_cast<int>(blockIdx.x) / groups.n_tiles,
            column = static_cast<int>(blockIdx.x) % groups.n_tiles * gemm_tile;
  const GroupTile tile = find_group_tile(groups.offsets, groups.num_experts, groups.rows, gemm_tile, number);
  if (tile.expert < 0) return;
  if (tile.expert == groups.num_experts) {
    if (!epilogue.residual) zero_tile(epilogue, tile, gemm_tile, column, static_cast<int>(of.N), gemm_tile);
    return;
  }
  of.w += tile.expert * groups.matrix;
  of.M = tile.end;
  compute_gemm_tile(of, tile.row, column, epilogue);
}

GroupShape groups_of(const GroupedGemmForward& args, int64_t columns) {
  GroupShape groups{};
  groups.offsets = numbers<const int32_t>(args.offsets);
  groups.num_experts = static_cast<int>(args.offsets.dim(0) - 1);
  groups.rows = static_cast<int>(args.y.dim(0));
  groups.n_tiles = static_cast<int>(group_pieces(args.y.dim(1), columns));
  groups.matrix = args.w.row_stride;
  return groups;
}

// Thread blocks for tiles of this size.
unsigned blocks_of(const GroupedGemmForward& args, int64_t height, int64_t columns) {
  return static_cast<unsigned>(max_group_tiles(args.y.dim(0), args.offsets.dim(0) - 1, height) *
                               group_pieces(args.y.dim(1), columns));
}

bool in_vectors(const Tensor& x) { return x.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0; }

// With `accumulate` y is its own residual.
GemmEpilogue epilogue_of(const GroupedGemmForward& args) {
  return GemmEpilogue(args.y, Tensor(), args.accumulate ? args.y : Tensor());
}

template <class Tile>
void launch_mma(Context& context, const GroupedGemmForward& args) {
  MmaShape shape{};
  shape.N = static_cast<int>(args.y.dim(1));
  shape.K = static_cast<int>(args.x.dim(1));
  shape.splits = 1;
  shape.packed = in_vectors(args.y) && args.y.dim(1) % 8 == 0 && (!args.accumulate || args.y.dtype == DType::bf16);
  allow_shared_memory(mma_kernel<Tile>, Tile::shared_bytes);
  mma_kernel<Tile>
      <<<blocks_of(args, Tile::rows, Tile::columns), Tile::threads, Tile::shared_bytes, cuda_stream(context)>>>(
          numbers<const __nv_bfloat16>(args.x), numbers<const __nv_bfloat16>(args.w), args.x.row_stride, args.w.dim(2),
          epilogue_of(args), shape, groups_of(args, Tile::columns));
}

// Calls use(tile) with the first tile that fits the device's shared memory.
template <class First, class... Others, class Use>
void first_that_fits(Use use) {
  if constexpr (sizeof...(Others) > 0)
    if (First::shared_bytes > max_shared_bytes()) return first_that_fits<Others...>(use);
  use(First{});
}

// By the rows per expert that has some: the tile that wastes least, or the fastest.
template <class Use>
void choose_tile(int64_t rows, int64_t num_experts, Use use) {
  const int64_t per_expert = group_pieces(rows, std::max<int64_t>(1, std::min(rows, num_experts)));
  if (per_expert <= 16)
    first_that_fits<MmaTile<16, 64, 16, 16, 64, 6, 3>, MmaTile<16, 64, 16, 16, 64, 3, 3>>(use);
  else if (per_expert <= 96)
    first_that_fits<MmaTile<64, 64, 32, 32, 64, 5, 2>, MmaTile<64, 64, 32, 32, 64, 3, 2>>(use);
  else
    first_that_fits<MmaTile<128, 128, 64, 32, 64, 4, 1>, MmaTile<128, 128, 64, 32, 64, 3, 1>>(use);
}

void mma_forward(Context& context, const GroupedGemmForward& args) {
  check_grouped_gemm(args);
  if (args.y.size() == 0) return;
  choose_tile(args.y.dim(0), args.offsets.dim(0) - 1, [&](auto tile) { launch_mma<decltype(tile)>(context, args); });
  check_launch(grouped_gemm_forward);
}

void forward(Context& context, const GroupedGemmForward& args) {
  check_grouped_gemm(args);
  if (args.y.size() == 0) return;
  with_storage(grouped_gemm_forward, args.x.dtype, [&](auto type) {
    using T = decltype(type);
    GemmOperands<T> of{};
    of.x = numbers<const T>(args.x);
    of.w = numbers<const T>(args.w);
    of.N = args.y.dim(1);
    of.K = args.x.dim(1);
    of.x_stride = args.x.row_stride;
    of.w_stride = args.w.dim(2);
    of.x_packed = gemm_rows_aligned<T>(args.x);
    of.w_packed = gemm_rows_aligned<T>(expert_matrix(args.w, 0)) && args.w.row_stride % vec_size<T> == 0;
    tiles_kernel<T><<<blocks_of(args, gemm_tile, gemm_tile), gemm_tile_threads<T>, 0, cuda_stream(context)>>>(
        of, epilogue_of(args), groups_of(args, gemm_tile));
  });
  check_launch(grouped_gemm_forward);
}

bool supports(const GroupedGemmForward& args) {
  return args.x.dtype == DType::bf16 && in_vectors(args.x) && in_vectors(args.w) && args.w.dim(2) % 8 == 0 &&
         args.w.dim(2) > 0;
}

[[maybe_unused]] const bool added = grouped_gemm_forward.add({"mma", DeviceKind::cuda, mma_forward, 5, supports}) &&
                                    grouped_gemm_forward.add({"tiles", DeviceKind::cuda, forward});

void plan_launches(const DeviceLimits& limits, LaunchPlans& out) {
  const DeviceLimitsScope scope(limits);
  for (const int64_t rows : {8, 2048, 131072})
    choose_tile(rows, 64, [&](auto tile) {
      using Tile = decltype(tile);
      out.add(concat("mma_kernel ", Tile::rows, " x ", Tile::columns, ", ", Tile::stages, " stages"), mma_kernel<Tile>,
              Tile::threads, Tile::shared_bytes);
    });
}
[[maybe_unused]] const bool planned = launch_plans().add("grouped_gemm_forward.mma", plan_launches);

}  // namespace
}  // namespace hone
