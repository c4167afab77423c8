#pragma once
// What the launches of a CUDA body take at most, for devices with given limits. A portable body whose kernels may need
// more than 48 KB of shared memory, or whose shared memory depends on the device, registers its plan. The plan calls
// the functions that the launch calls, so tests find without a GPU whether each kernel fits each capability
// (tests/kernels/cuda_limits_test.cpp).
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "kernels/cuda/limits.h"

namespace hone {

struct LaunchPlan {
  std::string name;  // kernel and template arguments
  const void* kernel = nullptr;
  int threads = 0;
  size_t dynamic_bytes = 0, static_bytes = 0;  // shared memory of a thread block
};
class LaunchPlans {
 public:
  // static_bytes: upper bound of the kernel's static shared memory.
  template <class Kernel>
  void add(std::string name, Kernel* kernel, int threads, size_t dynamic_bytes, size_t static_bytes = 0) {
    LaunchPlan plan;  // assigned by member: nvcc passes an initializer list to g++ in a form that g++ rejects
    plan.name = std::move(name);
    plan.kernel = reinterpret_cast<const void*>(kernel);
    plan.threads = threads;
    plan.dynamic_bytes = dynamic_bytes;
    plan.static_bytes = static_bytes;
    plans_.push_back(std::move(plan));
  }
  const std::vector<LaunchPlan>& all() const { return plans_; }

 private:
  std::vector<LaunchPlan> plans_;
};

// Adds every launch that the body makes on a device with these limits.
using PlanLaunches = void (*)(const DeviceLimits& limits, LaunchPlans& out);
// By "op.body".
Registry<PlanLaunches>& launch_plans();

}  // namespace hone
