#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "core/base/parallel_for.h"
#include "core/device/device.h"

namespace hone {
namespace {

// The number after `name` in a file of "name number" lines, or its first number if `name` is empty. nullopt if there is
// none ("max" of a cgroup without a limit).
std::optional<size_t> number_in(const char* path, const std::string& name = "") {
  std::ifstream in(path);
  std::string word;
  while (!name.empty() && in >> word && word != name) {}
  size_t out = 0;
  return in >> out ? std::optional(out) : std::nullopt;
}

// Memory that programs may still take: the system's, with files' caches, and what the container allows.
size_t available_bytes() {
  const std::optional<size_t> kibibytes = number_in("/proc/meminfo", "MemAvailable:");
  size_t out = kibibytes ? *kibibytes << 10
                         : static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const std::optional<size_t> limit = number_in("/sys/fs/cgroup/memory.max"),
                              used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) out = std::min(out, *limit > *used ? *limit - *used : 0);
  return out;
}

class CpuDevice : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string description() const override { return concat("CPU, ", num_threads(), " threads"); }
  void* allocate(size_t bytes) override {
    constexpr size_t alignment = 256;
    if (void* data = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment)) return data;
    fail("out of memory: asked for ", bytes, " bytes, ", free_bytes(),
         " are free; a smaller micro_batch_tokens or max_length, or recompute = \"full\", needs less");
  }
  void deallocate(void* data, size_t) noexcept override { std::free(data); }
  void* allocate_host(size_t bytes) override { return allocate(bytes); }
  void deallocate_host(void* data, size_t bytes) noexcept override { deallocate(data, bytes); }
  size_t free_bytes() const override { return available_bytes(); }
  void* make_stream() override { return nullptr; }
  void destroy_stream(void*) noexcept override {}
  void copy(void* to, const void* from, size_t bytes, void*) override { std::memmove(to, from, bytes); }
  void zero(void* data, size_t bytes, void*) override { std::memset(data, 0, bytes); }
  void synchronize(void*) override {}
};

[[maybe_unused]] const bool added = devices().add("cpu", [](int) { return std::unique_ptr<Device>(new CpuDevice); });

}  // namespace
}  // namespace hone
