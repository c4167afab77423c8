// Times of ops, measured with events on the stream.
#include "kernels/op_times.h"

#include <algorithm>

namespace hone {

void OpTimes::begin(Context& context, const char* name) {
  calls_.push_back({name, open_, context.device().make_event(true), context.device().make_event(true)});
  open_ = calls_.size() - 1;
  calls_.back().from->record(context.stream());
}

void OpTimes::end(Context& context) {
  calls_[open_].to->record(context.stream());
  open_ = calls_[open_].parent;
}

std::vector<OpTime> OpTimes::read(Context& context) const {
  context.synchronize();
  std::map<std::string, OpTime> sums;
  for (const Call& call : calls_) {
    const double seconds = call.to->seconds_since(*call.from);
    OpTime& sum = sums[call.name];
    ++sum.calls;
    sum.seconds += seconds;
    if (call.parent != none) sums[calls_[call.parent].name].seconds -= seconds;
  }
  std::vector<OpTime> out;
  for (auto& [name, sum] : sums) {
    sum.name = name;
    out.push_back(sum);
  }
  std::sort(out.begin(), out.end(), [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  return out;
}

}  // namespace hone
