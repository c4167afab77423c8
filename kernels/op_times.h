#pragma once
// How long each op takes on its device while a program runs: marks in the queue before and after every call.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/op.h"

namespace hone {

struct OpTime {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;  // without the ops that it calls
};

// Observes from its making to its end; one at a time.
class OpTimes : public OpObserver {
 public:
  OpTimes() { op_observer = this; }
  ~OpTimes() override { op_observer = nullptr; }
  void begin(Context& context, const char* name) override;
  void end(Context& context) override;
  // Longest first; waits for the context.
  std::vector<OpTime> read(Context& context) const;

 private:
  struct Call {
    const char* name;
    size_t parent;  // of calls_, or none
    std::unique_ptr<Event> from, to;
  };
  static constexpr size_t none = static_cast<size_t>(-1);
  std::vector<Call> calls_;
  size_t open_ = none;
};

}  // namespace hone
