#pragma once
// How the copy engine sees a matrix.
#include <cuda.h>

#include "kernels/cuda.cuh"

namespace hone {

// Whether the copy engine can read or write a bf16 matrix: 16-byte aligned rows. Their length may be any.
inline bool maps(const Tensor& x) { return x.dtype == DType::bf16 && x.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0; }

// Boxes of `rows` rows and 64 columns of a bf16 matrix, swizzled by 128 bytes; what lies outside of the matrix reads as zero and is not written.
inline CUtensorMap map_of(const Tensor& x, int rows) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {  // the driver's function, without a link to the driver
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    HONE_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
    HONE_CHECK(found == cudaDriverEntryPointSuccess, "cuda: the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode>(function);
  }();
  CUtensorMap map;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(x.dim(1)), static_cast<cuuint64_t>(x.dim(0))};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(x.row_stride) * 2};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(rows)}, steps[2] = {1, 1};
  const CUresult code = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, x.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HONE_CHECK(code == CUDA_SUCCESS, "cuda: no tensor map of [", x.dim(0), ", ", x.dim(1), "] with rows ", x.row_stride, " apart: code ",
             static_cast<int>(code));
  return map;
}

}  // namespace hone
