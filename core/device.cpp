#include "core/device.h"

#include <algorithm>
#include <utility>

namespace hone {

namespace {

// Of devices whose work is done when the call that queues it returns.
class PlainRecording : public Recording {
 public:
  explicit PlainRecording(std::function<void()> work) : work_(std::move(work)) {}
  void replay(void*) override { work_(); }

 private:
  std::function<void()> work_;
};
class PlainEvent : public Event {
 public:
  void record(void*) override {}
  void wait() override {}
};

}  // namespace

std::unique_ptr<Recording> Device::record(void*, std::function<void()> work) { return std::make_unique<PlainRecording>(std::move(work)); }
std::unique_ptr<Event> Device::make_event() { return std::make_unique<PlainEvent>(); }

Registry<DeviceFactory>& devices() {
  static Registry<DeviceFactory> registry("device");
  return registry;
}

std::unique_ptr<Device> open_device(const std::string& name) {
  if (name == "auto") return devices().at(devices().contains("cuda") ? "cuda" : "cpu")(0);
  return devices().at(name)(0);
}

Buffer::Buffer(Device& device, size_t bytes) : device_(&device), data_(device.allocate(bytes)), size_(bytes) {}
Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}
Buffer::~Buffer() {
  if (device_ && data_) device_->deallocate(data_, size_);
}

Arena::Arena(Device& device, size_t first_block) : device_(device), first_block_(first_block) {}

Tensor Arena::take(DType dtype, std::span<const int64_t> dims) {
  Tensor out(nullptr, dtype, device_.kind(), dims);
  constexpr size_t alignment = 256;
  const size_t bytes = (std::max<size_t>(out.bytes(), 1) + alignment - 1) / alignment * alignment;
  while (at_.block < blocks_.size() && at_.used + bytes > blocks_[at_.block].size()) ++at_.block, at_.used = 0;
  if (at_.block == blocks_.size()) {
    blocks_.emplace_back(device_, std::max({bytes, first_block_, capacity_bytes()}));
    at_.used = 0;
  }
  if (blocks_[at_.block].data()) out.data = static_cast<char*>(blocks_[at_.block].data()) + at_.used;
  at_.used += bytes;
  at_.total += bytes;
  peak_ = std::max(peak_, at_.total);
  return out;
}

size_t Arena::capacity_bytes() const {
  size_t sum = 0;
  for (const Buffer& block : blocks_) sum += block.size();
  return sum;
}

Context::Context(Device& device) : device_(device), stream_(device.make_stream()), scratch_(device) {}
Context::~Context() { device_.destroy_stream(stream_); }

void Context::zero(Tensor x) {
  if (x.contiguous()) return device_.zero(x.data, x.bytes(), stream_);
  for (int64_t r = 0; r < x.dim(0); ++r) zero(x.rows(r, 1));
}

void Context::copy(Tensor to, Tensor from) {
  HONE_CHECK(to.size() == from.size() && to.dtype == from.dtype, "copy: ", from.size(), " elements of ", name_of(from.dtype), " to ", to.size(),
             " of ", name_of(to.dtype));
  HONE_CHECK(to.contiguous() && from.contiguous(), "copy: rows that lie apart");
  if (to.device == DeviceKind::meta || from.device == DeviceKind::meta || to.size() == 0) return;
  device_.copy(to.data, from.data, to.bytes(), stream_);
  if (to.device != from.device) synchronize();
}

void Context::synchronize() { device_.synchronize(stream_); }

}  // namespace hone
