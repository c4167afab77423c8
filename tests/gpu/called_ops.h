#pragma once
// The ops that a fused body calls: none if its kernel ran, its steps if it fell back to them.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/op.h"

namespace hone::test {

// Records the ops that are called during its lifetime.
class CalledOps : public OpObserver {
 public:
  CalledOps() { op_observer = this; }
  ~CalledOps() override { op_observer = nullptr; }
  void begin(Context&, const char* name) override { names_.emplace_back(name); }
  void end(Context&) override {}
  bool has(std::string_view name) const { return std::ranges::find(names_, name) != names_.end(); }

 private:
  std::vector<std::string> names_;
};

}  // namespace hone::test
