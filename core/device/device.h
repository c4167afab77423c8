#pragma once
// Where numbers live and work is queued. Each kind of device is one file (device_cpu.cpp, device_cuda.cpp,
// device_meta.cpp) that joins devices(); which of them exist is the build's choice.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/registry.h"
#include "core/device/tensor.h"

namespace hone {

// Work of one stream that can be queued again and again at little cost: the same operations on the same memory.
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
  // Returns when the work before the last record() is done; throws what it failed of.
  virtual void wait() = 0;
  // Between the moments at which both were reached, of the same device and timed.
  virtual double seconds_since(const Event& earlier) const = 0;
};

// What lets all blocks of a kernel wait for each other: a word of the device's memory, all but its top bit zero between
// kernels, and how many blocks run at the same time when each has a multiprocessor's memory to itself. Without a word
// there is none.
struct CooperativeBarrier {
  uint32_t* word = nullptr;
  int most_blocks = 0;
};

// One device of one kind. Safe to use from any thread. Memory errors are Errors that say what was asked for, what is
// free, and which recipe keys help.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string description() const = 0;
  // Aligned to 256 bytes; contents undefined. nullptr only on meta.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* data, size_t bytes) noexcept = 0;
  // Host-visible staging memory (pinned where that means something).
  virtual void* allocate_host(size_t bytes) = 0;
  virtual void deallocate_host(void* data, size_t bytes) noexcept = 0;
  virtual size_t free_bytes() const = 0;
  // A queue of work; 0 is the device's default. Work on one stream runs in order.
  virtual void* make_stream() = 0;
  virtual void destroy_stream(void* stream) noexcept = 0;
  // Copies in stream order, either side on the host or this device; the host side must stay valid until synchronize().
  virtual void copy(void* to, const void* from, size_t bytes, void* stream) = 0;
  virtual void zero(void* data, size_t bytes, void* stream) = 0;
  // Returns when everything queued on the stream is done; throws what it failed of.
  virtual void synchronize(void* stream) = 0;
  // Whether queued work runs while the host goes on: then it pays to queue the next step before the last one is read.
  virtual bool asynchronous() const { return false; }
  // work queues operations on the stream, without waiting and without taking memory; it has run once before. A CUDA
  // graph; elsewhere the work itself.
  virtual std::unique_ptr<CapturedGraph> capture(void* stream, std::function<void()> work);
  // timed: for Event::seconds_since().
  virtual std::unique_ptr<Event> make_event(bool timed = false);
  // The stream's. The first that asks has a device's only one for as long as it lives: the blocks of two such kernels
  // could hold what the other's wait for. Other kernels that hold multiprocessors until something happens elsewhere
  // (NCCL's) make such a one wait, but must not wait for it.
  virtual CooperativeBarrier cooperative_barrier(void*) { return {}; }
  // What Buffers have of its memory now, and had at most.
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
// The device a recipe or a command line names; "auto" is cuda where the build and the machine have it, else cpu. An
// unknown name is an Error.
std::unique_ptr<Device> open_device(const std::string& name);
// Its kind without opening it; of "auto" what the build has.
DeviceKind device_kind(const std::string& name);

enum class MemoryKind : uint8_t { device, pinned };  // host: what a device copies from and to while the program goes on

// Owns bytes on a device, or on the host for it.
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

// A stack of tensors on one device: take() pushes, release() pops back to a mark. Its blocks grow in a loop's first
// rounds and are kept, so the steady state of a loop allocates nothing. One owner thread. Peak and capacity count
// bytes, on meta too.
class Arena {
 public:
  explicit Arena(Device& device, size_t first_block = size_t{1} << 20, MemoryKind place = MemoryKind::device);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  struct Mark {
    size_t block = 0, used = 0, total = 0, generation = 0;  // generation: of the blocks
    bool operator==(const Mark&) const = default;
  };
  Tensor take(DType dtype, std::initializer_list<int64_t> dims) {
    return take(dtype, std::span<const int64_t>(dims.begin(), dims.size()));
  }
  Tensor take(DType dtype, std::span<const int64_t> dims);
  Mark mark() const { return at_; }
  void release(Mark mark) { at_ = {mark.block, mark.used, mark.total, at_.generation}; }
  // Makes one block of all of it, at least `bytes` in size, unless there is one; an arena in use stays as it is. Marks
  // before differ from those after.
  void reserve(size_t bytes);
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

// exact: the forward pass is row-invariant, so that the log-probs of sampler and learner have the same bits
// (docs/explain/numerics.md). fast: bodies may choose by the number of rows (cuBLASLt for every matrix product on a
// GPU; no difference on the CPU).
enum class Numerics : uint8_t { exact, fast };

// As a recipe or a command line names them; an unknown name is an Error.
Numerics numerics_of(const std::string& name);
// The dtype of a model's weights and activations: f32, bf16, or auto, which is bf16 on cuda and f32 elsewhere. bf16
// where no body computes with it (cpu) is an Error.
DType model_dtype(const std::string& name, DeviceKind kind);

// What an operation needs to run: a device, a stream on it, and scratch memory. One thread at a time; an engine and a
// trainer that run at the same time have one each.
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

  // Whose bodies' scratch memory an op takes here: kind(), but that a meta context counts for the device it was told to
  // stand for.
  DeviceKind target() const { return target_; }
  void plan_for(DeviceKind target) { target_ = target; }

  void zero(Tensor x);
  // Sizes and dtypes must agree; both contiguous. The host's side is the caller's again when the call returns: what
  // comes from the host is on its way then (through staging memory, so that a step of a loop need not wait), what goes
  // to the host is there.
  void copy(Tensor to, Tensor from);
  // As copy(), but what goes to the host is there after the next synchronize(). Memory of MemoryKind::pinned makes it
  // worth while.
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

// Gives scratch taken in a scope back at its end.
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
