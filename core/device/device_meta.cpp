#include <cstdlib>
#include <limits>

#include "core/device/device.h"

namespace hone {
namespace {

class MetaDevice : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::meta; }
  std::string description() const override { return "meta: shapes without numbers"; }
  void* allocate(size_t) override { return nullptr; }
  void deallocate(void*, size_t) noexcept override {}
  void* allocate_host(size_t bytes) override { return std::calloc(bytes, 1); }
  void deallocate_host(void* data, size_t) noexcept override { std::free(data); }
  size_t free_bytes() const override { return std::numeric_limits<size_t>::max(); }
  void* make_stream() override { return nullptr; }
  void destroy_stream(void*) noexcept override {}
  void copy(void*, const void*, size_t, void*) override {}
  void zero(void*, size_t, void*) override {}
  void synchronize(void*) override {}
};

[[maybe_unused]] const bool added = devices().add("meta", [](int) { return std::unique_ptr<Device>(new MetaDevice); });

}  // namespace
}  // namespace hone
