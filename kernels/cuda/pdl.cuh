#pragma once
// Programmatic dependent launch (PDL): a kernel starts before its predecessor on the stream has ended.
#include "kernels/cuda/cuda.cuh"

namespace hone {

namespace hopper {
// griddep_launch_dependents(): the next kernel may start. griddep_wait(): waits until the kernels before have completed
// and their writes are visible. Both are no-ops in a launch without the attribute. A kernel that is launched with PDL
// always calls griddep_wait(): the kernel after the next one relies on it. Code for capabilities below 9.0 contains
// neither: a launch then has no attribute, and a kernel starts when the one before it has ended.
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

// Launches a kernel that may start while its predecessor on the stream still runs, if the device and the loaded machine
// code support it (DeviceLimits::dependent_launch). The kernel calls hopper::griddep_wait() before it touches anything
// that the predecessor reads or writes. It may prefetch weights before that, because kernels that write weights never
// trigger their dependents early. `cluster`: thread blocks per cluster; above 1 for Hopper bodies only.
template <class... P, class... A>
void launch_pdl(cudaStream_t stream, void (*kernel)(P...), dim3 grid, int threads, int shared_bytes, int cluster,
                const A&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2];
  config.attrs = attributes;
  if (device_limits().dependent_launch) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute& clusters = attributes[config.numAttrs++];
    clusters.id = cudaLaunchAttributeClusterDimension;
    clusters.val.clusterDim.x = static_cast<unsigned>(cluster);
    clusters.val.clusterDim.y = 1;
    clusters.val.clusterDim.z = 1;
  }
  HONE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace hone
