#include "kernels/cuda/limits.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>

#include "core/base/check.h"
#include "kernels/cuda/launch_plan.h"

namespace hone {
namespace {

constexpr std::array capabilities{80, 86, 89, 90, 100, 120};
constexpr size_t kb = 1024;

// Table "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide.
DeviceLimits made(const char* name, int capability, int num_sms, size_t block_kb, size_t sm_kb, int threads,
                  size_t l2_mb) {
  DeviceLimits out;
  out.name = name;
  out.capability = capability;
  out.code = capability;
  out.hopper_code = capability == 90;
  out.num_sms = num_sms;
  out.shared_per_block = block_kb * kb;
  out.shared_per_sm = sm_kb * kb;
  out.threads_per_sm = threads;
  out.l2_bytes = l2_mb * kb * kb;
  out.cluster_launch = capability >= 90;
  out.dependent_launch = capability >= 90;
  return out;
}

const std::array<DeviceLimits, capabilities.size()>& table() {
  static const std::array<DeviceLimits, capabilities.size()> all{
      made("A100", 80, 108, 163, 164, 2048, 40),           made("GeForce RTX 3060", 86, 28, 99, 100, 1536, 3),
      made("GeForce RTX 4060", 89, 24, 99, 100, 1536, 24), made("H100 PCIe", 90, 114, 227, 228, 2048, 50),
      made("B200", 100, 148, 227, 228, 2048, 126),         made("GeForce RTX 5060", 120, 30, 99, 100, 1536, 32)};
  return all;
}

// -1: the environment has not been read.
std::atomic<int> chosen_bodies{-1};
std::atomic<const DeviceLimits*> replaced_limits{nullptr};

}  // namespace

const DeviceLimits& DeviceLimits::of(int capability) {
  for (const DeviceLimits& limits : table())
    if (limits.capability == capability) return limits;
  std::string known;
  for (const int one : capabilities) known += concat(known.empty() ? "" : ", ", capability_text(one));
  fail("no limits of compute capability ", capability_text(capability), "; known: ", known);
}

std::span<const int> cuda_capabilities() { return capabilities; }
std::string capability_text(int capability) { return concat(capability / 10, ".", capability % 10); }

CudaBodies cuda_bodies_of(const char* text) {
  const std::string_view value = text ? text : "";
  if (value.empty() || value == "auto") return CudaBodies::automatic;
  if (value == "portable") return CudaBodies::portable;
  fail("HONE_CUDA_BODIES is \"", value, "\"; it must be \"auto\" or \"portable\"");
}

CudaBodies cuda_bodies() {
  int now = chosen_bodies.load(std::memory_order_relaxed);
  if (now < 0) {
    now = static_cast<int>(cuda_bodies_of(std::getenv("HONE_CUDA_BODIES")));
    chosen_bodies.store(now, std::memory_order_relaxed);
  }
  return static_cast<CudaBodies>(now);
}
void set_cuda_bodies(CudaBodies bodies) { chosen_bodies.store(static_cast<int>(bodies), std::memory_order_relaxed); }

bool is_hopper_body(std::string_view body) { return body == "sm90"; }
bool cuda_body_runs(std::string_view body, const DeviceLimits& limits, CudaBodies bodies) {
  if (!is_hopper_body(body)) return limits.capability >= 80;
  return limits.hopper_code && bodies == CudaBodies::automatic;
}

DeviceLimitsScope::DeviceLimitsScope(const DeviceLimits& limits) : before_(replaced_limits.exchange(&limits)) {}
DeviceLimitsScope::~DeviceLimitsScope() { replaced_limits = before_; }

const DeviceLimits& device_limits() {
  if (const DeviceLimits* limits = replaced_limits.load(std::memory_order_relaxed)) return *limits;
  if (device_limits_source.current)
    if (const DeviceLimits* limits = device_limits_source.current()) return *limits;
  return DeviceLimits::of(hopper_probe ? 90 : 80);
}
bool runs_hopper_bodies() { return cuda_body_runs("sm90", device_limits(), cuda_bodies()); }

Registry<PlanLaunches>& launch_plans() {
  static Registry<PlanLaunches> all("launch plan");
  return all;
}

std::vector<DeviceLimits> cuda_device_limits() {
  return device_limits_source.all ? device_limits_source.all() : std::vector<DeviceLimits>();
}

}  // namespace hone
