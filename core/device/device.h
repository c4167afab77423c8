#pragma once
// Devices, their memory and their streams. Each kind of device is one file (device_cpu.cpp, device_cuda.cpp,
// device_meta.cpp) that joins devices(). The build decides which exist.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/registry.h"
#include "core/device/tensor.h"

namespace hone {

// Captured stream work (a CUDA graph). launch() queues the same operations on the same memory again, at little cost.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual void launch(void* stream) = 0;
};

// A point in a stream's work that the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(void* stream) = 0;
  // Returns when the work before the last record() is done. Throws Error if that work failed.
  virtual void wait() = 0;
  // Time between the two events. Both must be timed and of the same device.
  virtual double seconds_since(const Event& earlier) const = 0;
};

// Lets all thread blocks of a kernel wait for each other. word: in device memory; between kernels all bits but the top
// one are zero; null if there is no barrier. most_blocks: how many thread blocks run at once if each uses the shared
// memory of a whole SM.
struct CooperativeBarrier {
  uint32_t* word = nullptr;
  int most_blocks = 0;
};

// One device. Thread-safe. Out of memory is an Error that says how much was requested, how much is free, and which
// recipe keys help.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string description() const = 0;
  // Aligned to 256 bytes; contents undefined. nullptr only on meta.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* data, size_t bytes) noexcept = 0;
  // Host memory for copies; pinned on cuda.
  virtual void* allocate_host(size_t bytes) = 0;
  virtual void deallocate_host(void* data, size_t bytes) noexcept = 0;
  virtual size_t free_bytes() const = 0;
  // Work on one stream runs in order. Null is the default stream.
  virtual void* make_stream() = 0;
  virtual void destroy_stream(void* stream) noexcept = 0;
  // Copies in stream order. Each side is on the host or on this device. Host memory must stay valid until
  // synchronize().
  virtual void copy(void* to, const void* from, size_t bytes, void* stream) = 0;
  virtual void zero(void* data, size_t bytes, void* stream) = 0;
  // Returns when all work of the stream is done. Throws Error if it failed.
  virtual void synchronize(void* stream) = 0;
  // True if queued work runs while the host continues. Then queue the next step before reading the last one's results.
  virtual bool asynchronous() const { return false; }
  // Captures what `work` queues on the stream: a CUDA graph; on other devices the function itself. `work` must neither
  // wait nor allocate, and must have run once before.
  virtual std::unique_ptr<CapturedGraph> capture(void* stream, std::function<void()> work);
  // timed: for Event::seconds_since().
  virtual std::unique_ptr<Event> make_event(bool timed = false);
  // Returns the barrier if `stream` owns it, else an empty one. A device has one barrier; the first stream that asks
  // keeps it. Two persistent kernels on different streams could deadlock: each would hold SMs that the other waits for.
  // NCCL kernels hold SMs too: they may delay a persistent kernel but must never wait for one.
  virtual CooperativeBarrier cooperative_barrier(void*) { return {}; }
  // Bytes of all Buffers on this device, now and at the peak.
  size_t used_bytes() const { return used_; }
  size_t peak_bytes() const { return peak_; }
  void reset_peak() { peak_ = used_.load(); }

 private:
  friend class Buffer;
  void count(size_t bytes);
  std::atomic<size_t> used_{0}, peak_{0};
};

using DeviceFactory = std::unique_ptr<Device> (*)(int index);
Registry<DeviceFactory>& devices();
// Opens the device that a recipe or command line names: "cpu", "cuda", "cuda:1", "meta". "auto" is cuda if the build
// and the machine have it, else cpu. Throws Error for an unknown name.
std::unique_ptr<Device> open_device(const std::string& name);
// The kind of a device name, without opening the device. For "auto": cuda if the build and the machine have it.
DeviceKind device_kind(const std::string& name);

enum class MemoryKind : uint8_t { device, pinned };  // pinned: host memory that a device copies to and from on its own

// Owns bytes on a device, or pinned host memory of it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, size_t bytes, MemoryKind place = MemoryKind::device);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t size_ = 0;
  MemoryKind place_ = MemoryKind::device;
};

// A stack allocator of tensors on one device: take() pushes, release() pops back to a mark. It keeps its memory, so
// that a loop allocates nothing after its first iterations. One thread. Peak and capacity are bytes, on meta too.
class Arena {
 public:
  explicit Arena(Device& device, size_t first_block = size_t{1} << 20, MemoryKind place = MemoryKind::device);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  struct Mark {
    size_t block = 0, used = 0, total = 0, generation = 0;  // generation changes when reserve() replaces the blocks
    bool operator==(const Mark&) const = default;
  };
  Tensor take(DType dtype, std::initializer_list<int64_t> dims) {
    return take(dtype, std::span<const int64_t>(dims.begin(), dims.size()));
  }
  Tensor take(DType dtype, std::span<const int64_t> dims);
  Mark mark() const { return at_; }
  void release(Mark mark) { at_ = {mark.block, mark.used, mark.total, at_.generation}; }
  // Replaces the blocks by one of at least `bytes`, unless there is such a one or the arena is in use. Marks of before
  // become invalid.
  void reserve(size_t bytes);
  // Frees the blocks. Tensors and marks of before become invalid. peak_bytes() stays, for the next reserve().
  void free();
  Device& device() const { return device_; }
  size_t used_bytes() const { return at_.total; }
  size_t peak_bytes() const { return peak_; }
  size_t capacity_bytes() const;

 private:
  Device& device_;
  size_t first_block_;
  MemoryKind place_;
  std::vector<Buffer> blocks_;
  Mark at_;
  size_t peak_ = 0;
  bool reserved_ = false;
};

// exact: the forward pass is row-invariant, so the log-probs of sampler and learner have the same bits
// (docs/explain/numerics.md). fast: a kernel may be chosen by the number of rows (cuBLASLt for every GEMM on a GPU; no
// difference on the CPU).
enum class Numerics : uint8_t { exact, fast };

// Reads "exact" or "fast". Throws Error for another name.
Numerics numerics_of(const std::string& name);
// The dtype of weights and activations: "f32", "bf16", or "auto" (bf16 on cuda, f32 elsewhere). Throws Error for bf16
// on cpu, where no kernel computes with it.
DType model_dtype(const std::string& name, DeviceKind kind);

// What an op needs to run: a device, a stream and scratch memory. One thread at a time. An engine and a trainer that
// run at the same time have one each.
class Context {
 public:
  explicit Context(Device& device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device& device() const { return device_; }
  DeviceKind kind() const { return device_.kind(); }
  void* stream() const { return stream_; }
  Arena& scratch() { return scratch_; }
  Numerics numerics() const { return numerics_; }
  void set_numerics(Numerics numerics) { numerics_ = numerics; }

  // The device kind whose scratch memory an op takes: kind(); for a meta context the device that plan_for() named.
  DeviceKind target() const { return target_; }
  void plan_for(DeviceKind target) { target_ = target; }

  void zero(Tensor x);
  // Sizes and dtypes must agree; both must be contiguous. The caller may reuse host memory when the call returns: a
  // copy to the device goes through staging memory and does not wait, a copy to the host waits until the data has
  // arrived.
  void copy(Tensor to, Tensor from);
  // As copy(), but data for the host arrives with the next synchronize(). Use MemoryKind::pinned, else it gains
  // nothing.
  void copy_without_wait(Tensor to, Tensor from);
  void synchronize();

 private:
  void check_copy(const Tensor& to, const Tensor& from) const;

  Device& device_;
  void* stream_;
  Arena scratch_;
  Arena staging_;  // of copies from the host since the last synchronize()
  DeviceKind target_;
  Numerics numerics_ = Numerics::exact;
};

// Releases the scratch memory of a scope at its end.
class ScratchScope {
 public:
  explicit ScratchScope(Context& context) : arena_(context.scratch()), mark_(arena_.mark()) {}
  ~ScratchScope() { arena_.release(mark_); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace hone
