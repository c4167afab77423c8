#include "posttrain/weight_queue.h"

#include <algorithm>

namespace hone {

static Tensor as_values(const Buffer& bytes, const Tensor& like) { return {bytes.data(), like.dtype, like.device, like.dims()}; }

void WeightQueue::drop(std::deque<Kept>::iterator end) {
  for (auto kept = kept_.begin(); kept != end; ++kept) free_.push_back(std::move(kept->bytes));
  kept_.erase(kept_.begin(), end);
}

void WeightQueue::push(int64_t version) {
  const Tensor values = model_.trained_values();
  Kept kept{.version = version, .bytes = {}};
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) kept.bytes = std::move(free_.back()), free_.pop_back();
  }
  if (kept.bytes.size() == 0) kept.bytes = Buffer(context_.device(), values.bytes());
  context_.copy(as_values(kept.bytes, values), values);
  context_.synchronize();
  const std::lock_guard lock(mutex_);
  if (keep_ == Keep::newest) drop(kept_.end());  // only now: the other thread may ask for the one before
  kept_.push_back(std::move(kept));
}

int64_t WeightQueue::pop(int64_t version, Context& context, Model& copy) {
  Kept kept;
  {
    const std::lock_guard lock(mutex_);
    drop(std::ranges::find_if(kept_, [&](const Kept& of) { return of.version >= version; }));
    HONE_CHECK(!kept_.empty(), "weight queue: version ", version, " was not kept");
    kept = std::move(kept_.front());
    kept_.pop_front();
  }
  const Tensor values = copy.trained_values();
  HONE_CHECK(values.bytes() == kept.bytes.size(), "weight queue: a copy of ", values.bytes(), " bytes, the weights have ", kept.bytes.size());
  context.copy(values, as_values(kept.bytes, values));
  context.synchronize();
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(kept.bytes));
  return kept.version;
}

}  // namespace hone
