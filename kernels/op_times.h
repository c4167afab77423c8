#pragma once
// Device time of each op, measured by events in the queue before and after each call.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/op.h"

namespace hone {

struct OpTime {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;  // the time of ops that it calls is not included
};

// Measures from construction to destruction. At most one exists at a time.
class OpTimes : public OpObserver {
 public:
  OpTimes() { op_observer = this; }
  ~OpTimes() override { op_observer = nullptr; }
  void begin(Context& context, const char* name) override;
  void end(Context& context) override;
  // Waits for the context. The longest time comes first.
  std::vector<OpTime> read(Context& context) const;

 private:
  struct Call {
    const char* name;
    size_t parent;  // index into calls_, or none
    std::unique_ptr<Event> from, to;
  };
  static constexpr size_t none = static_cast<size_t>(-1);
  std::vector<Call> calls_;
  size_t open_ = none;
};

}  // namespace hone
