#pragma once
// The contract of kernels/adds_once.h: a call on A gives A + (a call on zeros), byte for byte.
#include <functional>
#include <map>

#include "kernels/adds_once.h"
#include "tests/kernels/op_check.h"

namespace hone::test {

// run(grads) adds to the gradients. Compares a run on random numbers with a run on zeros.
inline void expect_adds_once(std::vector<Floats> grads, const std::function<void(std::vector<Floats>&)>& run) {
  std::vector<Floats> before, sums;
  for (size_t g = 0; g < grads.size(); ++g) {
    Rng rng(100 + g);
    for (int64_t i = 0; i < grads[g].size(); ++i) grads[g][i] = 0;
    sums.push_back(grads[g]);
    for (int64_t i = 0; i < grads[g].size(); ++i) grads[g][i] = static_cast<float>(rng.normal());
    before.push_back(grads[g]);
  }
  run(grads);
  run(sums);
  for (size_t g = 0; g < grads.size(); ++g) {
    int64_t differing = 0, moved = 0;
    for (int64_t i = 0; i < grads[g].size(); ++i) {
      differing += !same_bits(grads[g][i], before[g][i] + sums[g][i]);
      moved += sums[g][i] != 0;
    }
    EXPECT_EQ(differing, 0) << "of " << grads[g].size() << " elements of gradient " << g;
    EXPECT_GT(moved, 0) << "gradient " << g << " stays 0";
  }
}

// Runs the case of every op that is declared for the device.
inline void expect_declared_ops_add_once(DeviceKind device, const std::map<std::string, std::function<void()>>& cases) {
  EXPECT_FALSE(ops_that_add_once(device).empty());
  for (const OpBase* op : ops_that_add_once(device)) {
    SCOPED_TRACE(op->name());
    const auto found = cases.find(std::string(op->name()));
    ASSERT_NE(found, cases.end()) << "add a case to this test";
    found->second();
  }
}

}  // namespace hone::test
