#pragma once
// The error check of CUDA runtime calls.
#include <cuda_runtime_api.h>

#include "core/base/check.h"

// Every CUDA runtime call passes through here: HONE_CUDA_CHECK(cudaMemcpyAsync(...)).
#define HONE_CUDA_CHECK(call)                                                                            \
  do {                                                                                                   \
    if (const cudaError_t hone_cuda_code = (call); hone_cuda_code != cudaSuccess) [[unlikely]]           \
      ::hone::fail("CUDA: ", cudaGetErrorString(hone_cuda_code), " (", cudaGetErrorName(hone_cuda_code), \
                   ") in " #call " at " __FILE__ ":", __LINE__);                                         \
  } while (false)
