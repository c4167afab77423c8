#include "core/device/device.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/log.h"
#include "core/device/cuda_facts.h"

namespace hone {

namespace {

// The event of devices whose work is done when the queuing call returns.
class PlainCapturedGraph : public CapturedGraph {
 public:
  explicit PlainCapturedGraph(std::function<void()> work) : work_(std::move(work)) {}
  void launch(void*) override { work_(); }

 private:
  std::function<void()> work_;
};
class PlainEvent : public Event {
 public:
  void record(void*) override { at_ = Clock::now(); }
  void wait() override {}
  double seconds_since(const Event& earlier) const override {
    return std::chrono::duration<double>(at_ - static_cast<const PlainEvent&>(earlier).at_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point at_;
};

}  // namespace

std::unique_ptr<CapturedGraph> Device::capture(void*, std::function<void()> work) {
  return std::make_unique<PlainCapturedGraph>(std::move(work));
}
std::unique_ptr<Event> Device::make_event(bool) { return std::make_unique<PlainEvent>(); }

Registry<DeviceFactory>& devices() {
  static Registry<DeviceFactory> registry("device");
  return registry;
}

// Splits "cuda:1" into kind and index.
static std::pair<std::string, int> kind_and_index(const std::string& name) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return {name, 0};
  int index = -1;
  const char *begin = name.data() + colon + 1, *end = name.data() + name.size();
  const auto [read, problem] = std::from_chars(begin, end, index);
  HONE_CHECK(problem == std::errc() && read == end && index >= 0, "device '", name,
             "': what follows ':' is no number of a device");
  return {name.substr(0, colon), index};
}

std::string unknown_device(const std::string& name) {
  if (name.substr(0, name.find(':')) != "cuda") return devices().unknown(name);
  return concat("device '", name,
                "': this build of hone has no CUDA: install the package hone-cuda, or build it with ./dev build "
                "--preset cuda on a machine with nvcc; device = \"cpu\" needs neither");
}

std::unique_ptr<Device> open_device(const std::string& name) {
  if (name != "auto") {
    const auto [kind, index] = kind_and_index(name);
    const DeviceFactory* factory = devices().find(kind);
    HONE_CHECK(factory, unknown_device(name));
    return (*factory)(index);
  }
  if (const DeviceFactory* cuda = devices().find("cuda")) {
    try {
      return (*cuda)(0);
    } catch (const Error& error) {  // built for a GPU, on a machine without one that works
      const std::optional<CudaFacts> facts = find_cuda();
      if (facts && has_unusable_gpu(*facts)) log::warning("device auto is the CPU: ", error.what());
    }
  }
  return devices().at("cpu")(0);
}

// Whether this machine has a GPU for "auto". Asked once: GPUs and CUDA_VISIBLE_DEVICES stay as they are.
static bool has_usable_gpu() {
  static const bool found = [] {
    const std::optional<CudaFacts> facts = find_cuda();
    return facts && gpu_problem(*facts, 0).empty();
  }();
  return found;
}

DeviceKind device_kind(const std::string& text) {
  const std::string name = kind_and_index(text).first;
  if (name == "auto") return has_usable_gpu() ? DeviceKind::cuda : DeviceKind::cpu;
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda, DeviceKind::meta})
    if (devices().contains(name) && name == name_of(kind)) return kind;
  fail(unknown_device(text));
}

Numerics numerics_of(const std::string& name) {
  HONE_CHECK(name == "exact" || name == "fast", "numerics must be exact or fast, not '", name, "'");
  return name == "exact" ? Numerics::exact : Numerics::fast;
}

DType model_dtype(const std::string& name, DeviceKind kind) {
  HONE_CHECK(name == "auto" || name == "f32" || name == "bf16", "dtype must be auto, f32 or bf16, not '", name, "'");
  HONE_CHECK(name != "bf16" || kind != DeviceKind::cpu,
             "dtype is bf16 and the device cpu, which computes in f32: take dtype f32 or auto, or a GPU");
  if (name == "auto") return kind == DeviceKind::cuda ? DType::bf16 : DType::f32;
  return name == "f32" ? DType::f32 : DType::bf16;
}

void Device::count(size_t bytes) {
  const size_t now = used_ += bytes;
  for (size_t most = peak_; most < now && !peak_.compare_exchange_weak(most, now);) {}
}

Buffer::Buffer(Device& device, size_t bytes, MemoryKind place)
    : device_(&device),
      data_(place == MemoryKind::pinned ? device.allocate_host(bytes) : device.allocate(bytes)),
      size_(bytes),
      place_(place) {
  if (place_ == MemoryKind::device) device.count(size_);
}
Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      place_(other.place_) {}
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(place_, other.place_);
  return *this;
}
Buffer::~Buffer() {
  if (!device_) return;
  if (place_ == MemoryKind::device) device_->used_ -= size_;
  if (!data_) return;
  if (place_ == MemoryKind::device)
    device_->deallocate(data_, size_);
  else
    device_->deallocate_host(data_, size_);
}

Arena::Arena(Device& device, size_t first_block, MemoryKind place)
    : device_(device), first_block_(first_block), place_(place) {}

Tensor Arena::take(DType dtype, std::span<const int64_t> dims) {
  Tensor out(nullptr, dtype, place_ == MemoryKind::pinned ? DeviceKind::cpu : device_.kind(), dims);
  constexpr size_t alignment = 256;
  const size_t bytes = (std::max<size_t>(out.bytes(), 1) + alignment - 1) / alignment * alignment;
  while (at_.block < blocks_.size() && at_.used + bytes > blocks_[at_.block].size()) ++at_.block, at_.used = 0;
  if (at_.block == blocks_.size()) {
    blocks_.emplace_back(device_, std::max({bytes, first_block_, reserved_ ? 0 : capacity_bytes()}), place_);
    at_.used = 0;
  }
  if (blocks_[at_.block].data()) out.data = static_cast<char*>(blocks_[at_.block].data()) + at_.used;
  at_.used += bytes;
  at_.total += bytes;
  peak_ = std::max(peak_, at_.total);
  return out;
}

void Arena::reserve(size_t bytes) {
  if (at_.total > 0 || (blocks_.size() == 1 && blocks_.front().size() >= bytes)) return;
  bytes = std::max(bytes, peak_);
  blocks_.clear();  // before the allocation: both may not fit
  blocks_.emplace_back(device_, bytes, place_);
  reserved_ = true;
  at_ = {.generation = at_.generation + 1};
}

void Arena::free() {
  blocks_.clear();
  reserved_ = false;
  at_ = {.generation = at_.generation + 1};
}

size_t Arena::capacity_bytes() const {
  size_t sum = 0;
  for (const Buffer& block : blocks_) sum += block.size();
  return sum;
}

constexpr size_t most_staged =
    size_t{4} << 20;  // larger copies from the host skip staging, and the call waits for them
constexpr size_t staging_limit = size_t{64} << 20;  // bytes of staged copies that have not finished

Context::Context(Device& device)
    : device_(device),
      stream_(device.make_stream()),
      scratch_(device),
      staging_(device, size_t{1} << 16, MemoryKind::pinned),
      target_(device.kind()) {}
Context::~Context() {
  try {
    synchronize();          // nothing may read the memory that is freed next
  } catch (const Error&) {  // whoever waits for results reports the failure; a destructor must not throw
  }
  device_.destroy_stream(stream_);
}

void Context::zero(Tensor x) {
  if (x.contiguous()) return device_.zero(x.data, x.bytes(), stream_);
  for (int64_t r = 0; r < x.dim(0); ++r) zero(x.rows(r, 1));
}

void Context::check_copy(const Tensor& to, const Tensor& from) const {
  HONE_CHECK(to.size() == from.size() && to.dtype == from.dtype, "copy: ", from.size(), " elements of ",
             name_of(from.dtype), " to ", to.size(), " of ", name_of(to.dtype));
  HONE_CHECK(to.contiguous() && from.contiguous(), "copy: both tensors must be contiguous");
}

void Context::copy(Tensor to, Tensor from) {
  check_copy(to, from);
  if (to.device == DeviceKind::meta || from.device == DeviceKind::meta || to.size() == 0) return;
  const bool upload = from.device == DeviceKind::cpu && to.device != DeviceKind::cpu;
  if (upload && from.bytes() <= most_staged) {
    if (staging_.used_bytes() + from.bytes() > staging_limit) synchronize();
    const Tensor staged = staging_.take(DType::u8, {static_cast<int64_t>(from.bytes())});
    std::memcpy(staged.data, from.data, from.bytes());
    return device_.copy(to.data, staged.data, to.bytes(), stream_);
  }
  device_.copy(to.data, from.data, to.bytes(), stream_);
  if (to.device != from.device) synchronize();
}

void Context::copy_without_wait(Tensor to, Tensor from) {
  if (to.device != DeviceKind::cpu || from.device == DeviceKind::cpu) return copy(to, from);
  check_copy(to, from);
  if (from.device == DeviceKind::meta || to.size() == 0) return;
  device_.copy(to.data, from.data, to.bytes(), stream_);
}

void Context::synchronize() {
  device_.synchronize(stream_);
  staging_.release({});
}

}  // namespace hone
