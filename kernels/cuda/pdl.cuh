#pragma once
// Programmatic dependent launch (PDL): a kernel starts before its predecessor on the stream has ended.
#include "kernels/cuda/cuda.cuh"

namespace hone {

namespace hopper {
// griddep_launch_dependents(): the next kernel may start. griddep_wait(): waits until the kernels before have completed
// and their writes are visible. Both are no-ops in a launch without the attribute. A kernel that is launched with PDL
// always calls griddep_wait(): the kernel after the next one relies on it.
__device__ inline void griddep_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void griddep_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
}  // namespace hopper

// Launches a kernel that may start while its predecessor on the stream still runs. The kernel calls
// hopper::griddep_wait() before it touches anything that the predecessor reads or writes. It may prefetch weights
// before that, because kernels that write weights never trigger their dependents early. `cluster`: thread blocks per
// cluster.
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
  attributes[1].val.clusterDim.x = static_cast<unsigned>(cluster);
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  HONE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace hone
