#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "core/base/build_info.h"
#include "core/device/cuda_check.h"
#include "core/device/cuda_facts.h"
#include "core/device/device.h"
#include "core/device/device_peers.h"

namespace hone {
namespace {

class Graph : public CapturedGraph {
 public:
  explicit Graph(cudaGraphExec_t graph) : graph_(graph) {}
  ~Graph() override { cudaGraphExecDestroy(graph_); }
  void launch(void* stream) override { HONE_CUDA_CHECK(cudaGraphLaunch(graph_, static_cast<cudaStream_t>(stream))); }

 private:
  cudaGraphExec_t graph_;
};

class CudaEvent : public Event {
 public:
  explicit CudaEvent(bool timed) {
    HONE_CUDA_CHECK(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming));
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  void record(void* stream) override { HONE_CUDA_CHECK(cudaEventRecord(event_, static_cast<cudaStream_t>(stream))); }
  void wait() override { HONE_CUDA_CHECK(cudaEventSynchronize(event_)); }
  double seconds_since(const Event& earlier) const override {
    float milliseconds = 0;
    HONE_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(earlier).event_, event_));
    return milliseconds * 1e-3;
  }
  void make_stream_wait(void* stream) const {
    HONE_CUDA_CHECK(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_, 0));
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Ends the capture if `work` threw, so that the stream stays usable.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    HONE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() {
    if (!ended_) cudaStreamEndCapture(stream_, &graph_);
    if (graph_) cudaGraphDestroy(graph_);
  }
  cudaGraph_t end() {
    ended_ = true;
    HONE_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph_));
    return graph_;
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  bool ended_ = false;
};

// The grid barriers of the process, one per device.
class CooperativeBarriers {
 public:
  // The barrier of the current device (number `index`) if `stream` owns it. The default stream never does.
  uint32_t* of(int index, void* stream) {
    const std::scoped_lock lock(mutex_);
    Barrier& barrier = barriers_[index];
    if (!stream || (barrier.owner && barrier.owner != stream)) return nullptr;
    barrier.owner = stream;
    if (!barrier.word) {
      int shared = 0;  // with other processes, whose kernels run beside this one's
      HONE_CUDA_CHECK(cudaDeviceGetAttribute(&shared, cudaDevAttrMpsEnabled, index));
      if (shared) return nullptr;
      void* word = nullptr;
      HONE_CUDA_CHECK(cudaMalloc(&word, sizeof(uint32_t)));
      barrier.word = static_cast<uint32_t*>(word);
      HONE_CUDA_CHECK(cudaMemset(word, 0, sizeof(uint32_t)));
      HONE_CUDA_CHECK(cudaStreamSynchronize(nullptr));  // streams do not wait for the default one
    }
    return barrier.word;
  }
  void release(int index, void* stream) noexcept {
    const std::scoped_lock lock(mutex_);
    if (const auto found = barriers_.find(index); found != barriers_.end() && found->second.owner == stream)
      found->second.owner = nullptr;
  }

 private:
  struct Barrier {
    void* owner = nullptr;
    uint32_t* word = nullptr;
  };
  std::mutex mutex_;
  std::map<int, Barrier> barriers_;
};
CooperativeBarriers& grid_barriers() {
  static CooperativeBarriers& all =
      *new CooperativeBarriers;  // never destroyed: streams of static contexts may outlive static objects here
  return all;
}

GpuFacts facts_of(int index) {
  cudaDeviceProp properties{};
  HONE_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return {.name = properties.name,
          .major = properties.major,
          .minor = properties.minor,
          .num_sms = properties.multiProcessorCount,
          .total_bytes = properties.totalGlobalMem,
          .block_bytes = properties.sharedMemPerBlockOptin,
          .l2_bytes = static_cast<size_t>(properties.l2CacheSize)};
}

CudaFacts ask_runtime() {
  CudaFacts out{.architectures = build_cuda_architectures()};
  HONE_CUDA_CHECK(cudaRuntimeGetVersion(&out.runtime_version));
  HONE_CUDA_CHECK(cudaDriverGetVersion(&out.driver_version));
  if (std::ifstream file("/proc/driver/nvidia/version"); file)
    out.driver = driver_version_in(std::string(std::istreambuf_iterator<char>(file), {}));
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) out.visible_devices = visible;
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess) {
    cudaGetLastError();  // clears it
    out.error = cudaGetErrorString(code);
    return out;
  }
  for (int i = 0; i < count; ++i) out.gpus.push_back(facts_of(i));
  return out;
}

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    const std::string problem = gpu_problem(ask_runtime(), index);
    HONE_CHECK(problem.empty(), "cuda: ", problem);
    HONE_CUDA_CHECK(cudaGetDeviceProperties(&properties_, index));
  }
  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string description() const override {
    return concat(properties_.name, ", sm_", properties_.major, properties_.minor, ", ",
                  properties_.multiProcessorCount, " multiprocessors");
  }

  void* allocate(size_t bytes) override {
    use();
    void* data = nullptr;
    const cudaError_t code = cudaMalloc(&data, std::max<size_t>(bytes, 1));
    if (code == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      fail("out of GPU memory: asked for ", bytes, " bytes, ", free_bytes(),
           " are free; a smaller micro_batch_tokens, max_length or kv_cache_tokens, or recompute = \"selective\" or "
           "\"full\", needs less");
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
    use();
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
  void destroy_stream(void* stream) noexcept override {
    grid_barriers().release(index_, stream);
    cudaStreamDestroy(static_cast<cudaStream_t>(stream));
  }
  void copy(void* to, const void* from, size_t bytes, void* stream) override {
    use();
    HONE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
  }
  void zero(void* data, size_t bytes, void* stream) override {
    use();
    HONE_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(stream)));
  }
  void synchronize(void* stream) override {
    use();
    HONE_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
  }
  bool asynchronous() const override { return true; }
  std::unique_ptr<CapturedGraph> capture(void* stream, std::function<void()> work) override {
    use();
    Capture capture(static_cast<cudaStream_t>(stream));
    work();
    cudaGraphExec_t graph = nullptr;
    HONE_CUDA_CHECK(cudaGraphInstantiate(&graph, capture.end(), 0));
    return std::make_unique<Graph>(graph);
  }
  CooperativeBarrier cooperative_barrier(void* stream) override {
    use();
    return {grid_barriers().of(index_, stream), properties_.multiProcessorCount};
  }
  std::unique_ptr<Event> make_event(bool timed) override {
    use();
    return std::make_unique<CudaEvent>(timed);
  }

 private:
  // CUDA launches kernels on the calling thread's current device. Every call that allocates, queues or waits sets it.
  // Kernels need no call of their own: a pass begins with a copy() from the host on the same thread.
  void use() const { HONE_CUDA_CHECK(cudaSetDevice(index_)); }
  int index_;
  cudaDeviceProp properties_{};
};

[[maybe_unused]] const bool added = [] {
  cuda_facts_source = ask_runtime;
  return devices().add("cuda", [](int index) { return std::unique_ptr<Device>(new CudaDevice(index)); });
}();

int count_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // clears it: a machine without a GPU or driver has none
  return 0;
}

// Without peer access cudaMemcpyAsync copies through the host: so it does where the machine has none, and beyond the
// number of peers that a GPU may have.
void reach(const void* memory) {
  cudaPointerAttributes owner{};
  int reader = 0, possible = 0;
  HONE_CUDA_CHECK(cudaPointerGetAttributes(&owner, memory));
  HONE_CUDA_CHECK(cudaGetDevice(&reader));
  if (owner.type != cudaMemoryTypeDevice || owner.device == reader) return;
  HONE_CUDA_CHECK(cudaDeviceCanAccessPeer(&possible, reader, owner.device));
  if (!possible) return;
  const cudaError_t code = cudaDeviceEnablePeerAccess(owner.device, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled || code == cudaErrorTooManyPeers)
    cudaGetLastError();  // clears it
  else
    HONE_CUDA_CHECK(code);
}

[[maybe_unused]] const bool added_peers = device_peers().add(
    "cuda", {.count = count_devices, .reach = reach, .make_stream_wait = [](Event& event, void* stream) {
               static_cast<CudaEvent&>(event).make_stream_wait(stream);
             }});

}  // namespace
}  // namespace hone
