#pragma once
// Tensor maps: how TMA sees a matrix.
#include <cuda.h>

#include "kernels/cuda/cuda.cuh"

namespace hone {

// True if TMA can read and write x: bf16 with 16-byte aligned rows. Rows may have any length.
inline bool tma_compatible(const Tensor& x) {
  return x.dtype == DType::bf16 && x.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

// The same for a matrix of bytes.
inline bool tma_compatible_u8(const Tensor& x) {
  return x.dtype == DType::u8 && x.row_stride % 16 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

// Encodes a map with boxes of `rows` rows and 64 columns, 32 for f32. The swizzle is as wide as a box row: 128 bytes,
// 64 for bytes (u8). Elements outside the tensor read as zero and are not written. Sizes and strides are given from the
// innermost dimension outward. A box has one index of every middle dimension. The driver function comes from
// cudaGetDriverEntryPointByVersion, so the program does not link the driver.
template <size_t Rank>
CUtensorMap encode_map(const Tensor& x, const cuuint64_t (&sizes)[Rank], const cuuint64_t (&strides)[Rank - 1],
                       int rows) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    HONE_CUDA_CHECK(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
#else
    HONE_CUDA_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found));
#endif
    HONE_CHECK(found == cudaDriverEntryPointSuccess,
               "cuda: the driver has no cuTensorMapEncodeTiled; CUDA 12.0 or newer is needed");
    return reinterpret_cast<Encode>(function);
  }();
  cuuint32_t box[Rank], steps[Rank];
  for (size_t i = 0; i < Rank; ++i) {
    box[i] = i == 0 ? (x.dtype == DType::f32 ? 32 : 64) : i == Rank - 1 ? static_cast<cuuint32_t>(rows) : 1;
    steps[i] = 1;
  }
  CUtensorMap map;
  const bool bytes = x.dtype == DType::u8;
  const CUtensorMapDataType type = bytes                   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : x.dtype == DType::f32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                                           : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const CUresult code = encode(&map, type, Rank, x.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                               bytes ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HONE_CHECK(code == CUDA_SUCCESS, "cuda: no tensor map of [", x.dim(0), ", ", x.row_size(), "] with row stride ",
             x.row_stride, ": code ", static_cast<int>(code));
  return map;
}

// Map of a bf16 or byte matrix.
inline CUtensorMap make_tensor_map(const Tensor& x, int rows) {
  return encode_map<2>(x, {static_cast<cuuint64_t>(x.dim(1)), static_cast<cuuint64_t>(x.dim(0))},
                       {static_cast<cuuint64_t>(x.row_stride) * size_of(x.dtype)}, rows);
}
// Map of a bf16 tensor [tokens, heads, dim]; a box lies within one head.
inline CUtensorMap map_of_heads(const Tensor& x, int rows) {
  return encode_map<3>(
      x, {static_cast<cuuint64_t>(x.dim(2)), static_cast<cuuint64_t>(x.dim(1)), static_cast<cuuint64_t>(x.dim(0))},
      {static_cast<cuuint64_t>(x.dim(2)) * 2, static_cast<cuuint64_t>(x.row_stride) * 2}, rows);
}
// Map of matrices [matrices, rows, columns], bf16 or f32; a box lies within one matrix. Coordinates: column, matrix,
// row.
inline CUtensorMap map_of_matrices(const Tensor& x, int rows) {
  const cuuint64_t width = size_of(x.dtype);
  return encode_map<3>(
      x, {static_cast<cuuint64_t>(x.dim(2)), static_cast<cuuint64_t>(x.dim(0)), static_cast<cuuint64_t>(x.dim(1))},
      {static_cast<cuuint64_t>(x.row_stride) * width, static_cast<cuuint64_t>(x.dim(2)) * width}, rows);
}

}  // namespace hone
