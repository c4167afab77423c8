#pragma once
#include "kernels/cuda/cuda.cuh"

namespace hone {

namespace hopper {
// Programmatic dependent launch: the next kernel's blocks may start; memory of the kernels before is visible from here
// on. No-ops in a launch without the attribute. A kernel that is launched so waits, always: the next but one relies on
// it.
__device__ inline void griddep_launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ inline void griddep_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
}  // namespace hopper

// Launches a kernel that may start while the one before it on the stream still runs; it calls
// hopper::griddep_wait() before it touches what that one writes or reads, but may fetch weights: what writes
// weights never lets the next one start. `cluster`: blocks of a cluster.
template <class... P, class... A>
void launch_pdl(cudaStream_t stream, void (*kernel)(P...), dim3 grid, int threads, int shared_bytes, int cluster,
                const A&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(cluster), attributes[1].val.clusterDim.y = 1,
  attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes, config.numAttrs = cluster > 1 ? 2 : 1;
  HONE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace hone
