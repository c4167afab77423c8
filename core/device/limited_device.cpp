#include "core/device/limited_device.h"

#include <algorithm>
#include <atomic>

namespace hone {
namespace {

class LimitedDevice : public Device {
 public:
  LimitedDevice(std::unique_ptr<Device> device, size_t limit_bytes) : device_(std::move(device)), limit_(limit_bytes) {}
  DeviceKind kind() const override { return device_->kind(); }
  std::string description() const override { return device_->description(); }

  void* allocate(size_t bytes) override {
    reserve(bytes);
    try {
      return device_->allocate(bytes);
    } catch (...) {  // the bytes are free again, whatever went wrong
      held_ -= bytes;
      throw;
    }
  }
  void deallocate(void* data, size_t bytes) noexcept override {
    device_->deallocate(data, bytes);
    held_ -= bytes;
  }
  void* allocate_host(size_t bytes) override { return device_->allocate_host(bytes); }
  void deallocate_host(void* data, size_t bytes) noexcept override { device_->deallocate_host(data, bytes); }
  size_t free_bytes() const override {
    const size_t held = held_;
    return std::min(device_->free_bytes(), held < limit_ ? limit_ - held : 0);
  }
  void* make_stream() override { return device_->make_stream(); }
  void destroy_stream(void* stream) noexcept override { device_->destroy_stream(stream); }
  void copy(void* to, const void* from, size_t bytes, void* stream) override { device_->copy(to, from, bytes, stream); }
  void zero(void* data, size_t bytes, void* stream) override { device_->zero(data, bytes, stream); }
  void synchronize(void* stream) override { device_->synchronize(stream); }
  bool asynchronous() const override { return device_->asynchronous(); }
  std::unique_ptr<CapturedGraph> capture(void* stream, std::function<void()> work) override {
    return device_->capture(stream, std::move(work));
  }
  std::unique_ptr<Event> make_event(bool timed) override { return device_->make_event(timed); }
  CooperativeBarrier cooperative_barrier(void* stream) override { return device_->cooperative_barrier(stream); }

 private:
  // Counts the bytes before they are allocated: two threads never get the last bytes both.
  void reserve(size_t bytes) {
    size_t held = held_;
    do {
      HONE_CHECK(held <= limit_ && bytes <= limit_ - held, "out of memory: asked for ", bytes, " bytes, ", held,
                 " are in use, and device.memory limits the run to ", limit_,
                 "; raise the limit, or see what hone plan says about smaller settings");
    } while (!held_.compare_exchange_weak(held, held + bytes));
  }

  const std::unique_ptr<Device> device_;
  const size_t limit_;
  std::atomic<size_t> held_{0};
};

}  // namespace

std::unique_ptr<Device> limit_memory(std::unique_ptr<Device> device, size_t limit_bytes) {
  return std::make_unique<LimitedDevice>(std::move(device), limit_bytes);
}

}  // namespace hone
