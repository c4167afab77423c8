#include <cuda_runtime_api.h>

#include <algorithm>

#include "core/cuda_check.h"
#include "core/device.h"

namespace hone {
namespace {

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    HONE_CHECK(found == cudaSuccess, "cuda: ", cudaGetErrorString(found), " (is there a GPU, and a driver that nvidia-smi can talk to?)");
    HONE_CHECK(index < count, "cuda: device ", index, " was asked for, there are ", count);
    HONE_CUDA_CHECK(cudaSetDevice(index));
    HONE_CUDA_CHECK(cudaGetDeviceProperties(&properties_, index));
  }
  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string description() const override {
    return concat(properties_.name, ", sm_", properties_.major, properties_.minor, ", ", properties_.multiProcessorCount, " multiprocessors");
  }

  void* allocate(size_t bytes) override {
    use();
    void* data = nullptr;
    const cudaError_t code = cudaMalloc(&data, std::max<size_t>(bytes, 1));
    if (code == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      fail("out of GPU memory: asked for ", bytes, " bytes, ", free_bytes(),
           " are free; a smaller micro_batch_tokens, max_length or kv_cache_tokens, or recompute = \"block\", needs less");
    }
    HONE_CUDA_CHECK(code);
    return data;
  }
  void deallocate(void* data, size_t) noexcept override { cudaFree(data); }
  void* allocate_host(size_t bytes) override {
    use();
    void* data = nullptr;
    HONE_CUDA_CHECK(cudaMallocHost(&data, std::max<size_t>(bytes, 1)));
    return data;
  }
  void deallocate_host(void* data, size_t) noexcept override { cudaFreeHost(data); }
  size_t free_bytes() const override {
    size_t free = 0, total = 0;
    HONE_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }
  void* make_stream() override {
    use();
    cudaStream_t stream = nullptr;
    HONE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }
  void destroy_stream(void* stream) noexcept override { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }
  void copy(void* to, const void* from, size_t bytes, void* stream) override {
    HONE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
  }
  void zero(void* data, size_t bytes, void* stream) override { HONE_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(stream))); }
  void synchronize(void* stream) override { HONE_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(stream))); }

 private:
  // A thread's current device is its own state; allocations and streams belong to it.
  void use() const { HONE_CUDA_CHECK(cudaSetDevice(index_)); }
  int index_;
  cudaDeviceProp properties_{};
};

[[maybe_unused]] const bool added = devices().add("cuda", [](int index) { return std::unique_ptr<Device>(new CudaDevice(index)); });

}  // namespace
}  // namespace hone
