// Hopper bodies of the grouped GEMM and its gradients (grouped_sm90.cuh, grouped_weight_sm90.cuh).
#include "kernels/adds_once.h"
#include "kernels/cuda/sanitizer.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/moe/grouped_weight_sm90.cuh"

namespace hone {
namespace {

using grouped::Product;

// With fewer rows per expert the tiles are mostly empty, and reading the weights takes most of the time.
constexpr int64_t min_rows_per_expert = 96;

bool has_many_rows(int64_t rows, int64_t num_experts) { return rows >= min_rows_per_expert * num_experts; }

// Rows in units of 16 bytes, which the epilogues write one by one.
bool in_units(const Tensor& x) { return tma_compatible(x) && x.dim(-1) % 8 == 0 && x.dim(-1) > 0; }
bool matrices_in_units(const Tensor& x) {
  return x.dtype == DType::bf16 && x.row_stride % 8 == 0 && x.dim(2) % 8 == 0 && x.dim(2) > 0 && x.dim(1) > 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

int pieces(int64_t count, int64_t size) { return static_cast<int>((count + size - 1) / size); }

// True if tiles of 192 columns cover `width` in less time. A tile of 128 is about 5% slower for its size.
bool wide_tiles(int64_t width) { return pieces(width, 192) * 192 <= pieces(width, 128) * 128 * 1.05; }

template <class Tile, class... Arguments>
void launch(Context& context, void (*kernel)(Arguments...), int64_t tiles, const Arguments&... arguments) {
  allow_shared_memory(kernel, Tile::shared_bytes);
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(tiles, num_sms())));
  launch_pdl(cuda_stream(context), kernel, grid, Tile::threads, Tile::shared_bytes, 1, arguments...);
}

// Queues forward, out = a . w_e^T, or input, out = a . w_e, as Tile::product says. out [P, width].
template <class Tile>
void multiply_rows(Context& context, const Tensor& out, const Tensor& a, const Tensor& w, const Tensor& offsets,
                   bool accumulate) {
  const int64_t rows = out.dim(0), width = out.dim(1), experts = offsets.dim(0) - 1;
  const CUtensorMap out_map = make_tensor_map(out, 64);
  const grouped::StoreRows epilogue{{out_map, out_map, nullptr, static_cast<int>(width), false, accumulate},
                                    numbers<__nv_bfloat16>(out),
                                    out.row_stride};
  const int box_rows = Tile::product == Product::forward ? Tile::columns : grouped::depth;
  const grouped::Shape shape{numbers<const int32_t>(offsets), static_cast<int>(experts), static_cast<int>(rows),
                             static_cast<int>(width), static_cast<int>(a.dim(1))};
  launch<Tile>(context, grouped::grouped_sm90_kernel<Tile>,
               max_group_tiles(rows, experts, Tile::rows) * pieces(width, Tile::columns),
               make_tensor_map(a, Tile::rows), map_of_matrices(w, box_rows), epilogue, shape);
}

template <Product product>
void multiply(Context& context, const Tensor& out, const Tensor& a, const Tensor& w, const Tensor& offsets,
              bool accumulate) {
  if (wide_tiles(out.dim(1)))
    multiply_rows<grouped::Tile<product, 192, 4>>(context, out, a, w, offsets, accumulate);
  else
    multiply_rows<grouped::Tile<product, 128, 5>>(context, out, a, w, offsets, accumulate);
}

void forward(Context& context, const GroupedGemmForward& args) {
  check_grouped_gemm(args);
  multiply<Product::forward>(context, args.y, args.x, args.w, args.offsets, args.accumulate);
  mark_written(context, args);
  if (!args.accumulate) mark_initialized(context, args.y);
  check_launch(grouped_gemm_forward);
}

void input(Context& context, const GroupedGemmBackwardInput& args) {
  check_grouped_gemm(args);
  multiply<Product::input>(context, args.dx, args.dy, args.w, args.offsets, false);
  mark_written(context, args);
  check_launch(grouped_gemm_backward_input);
}

template <class Tile>
void launch_weight(Context& context, const GroupedGemmBackwardWeight& args) {
  const Tensor& dw = args.dw.sum;
  const int64_t E = dw.dim(0), N = dw.dim(1), K = dw.dim(2);
  const grouped::WeightShape shape{numbers<const int32_t>(args.offsets),
                                   static_cast<int>(E),
                                   static_cast<int>(N),
                                   static_cast<int>(K),
                                   numbers<float>(dw),
                                   dw.row_stride};
  launch<Tile>(context, grouped::grouped_weight_sm90_kernel<Tile>, E * pieces(N, Tile::rows) * pieces(K, Tile::columns),
               make_tensor_map(args.dy, grouped::depth), make_tensor_map(args.x, grouped::depth), shape);
}

template <bool accumulate>
void weight(Context& context, const GroupedGemmBackwardWeight& args) {
  if (wide_tiles(args.dw.sum.dim(2)))
    launch_weight<grouped::WeightTile<192, 5, accumulate>>(context, args);
  else
    launch_weight<grouped::WeightTile<128, 6, accumulate>>(context, args);
}

void weight(Context& context, const GroupedGemmBackwardWeight& args) {
  check_grouped_gemm(args);
  args.dw.accumulate ? weight<true>(context, args) : weight<false>(context, args);
  check_launch(grouped_gemm_backward_weight);
}

bool supports_forward(const GroupedGemmForward& args) {
  return runs_hopper_bodies() && in_units(args.y) && in_units(args.x) && matrices_in_units(args.w) &&
         has_many_rows(args.y.dim(0), args.offsets.dim(0) - 1);
}
bool supports_input(const GroupedGemmBackwardInput& args) {
  return runs_hopper_bodies() && in_units(args.dx) && in_units(args.dy) && matrices_in_units(args.w) &&
         has_many_rows(args.dx.dim(0), args.offsets.dim(0) - 1);
}
bool supports_weight(const GroupedGemmBackwardWeight& args) {
  const Tensor& dw = args.dw.sum;
  const bool aligned = dw.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(dw.data) % 16 == 0;
  return runs_hopper_bodies() && in_units(args.dy) && in_units(args.x) && aligned &&
         has_many_rows(args.x.dim(0), dw.dim(0));
}

[[maybe_unused]] const bool added =
    grouped_gemm_forward.add({"sm90", DeviceKind::cuda, forward, 10, supports_forward}) &&
    grouped_gemm_backward_input.add({"sm90", DeviceKind::cuda, input, 10, supports_input}) &&
    grouped_gemm_backward_weight.add({"sm90", DeviceKind::cuda, weight, 10, supports_weight}) &&
    declare_adds_once(grouped_gemm_backward_weight, DeviceKind::cuda);

}  // namespace
}  // namespace hone
