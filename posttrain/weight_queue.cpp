#include "posttrain/weight_queue.h"

#include <algorithm>

namespace hone {

static Tensor as_values(const Buffer& bytes, const Tensor& like) { return {bytes.data(), like.dtype, like.device, like.dims()}; }

Buffer WeightQueue::room(size_t bytes) {
  {
    const std::lock_guard lock(free_mutex_);
    if (!free_.empty()) {
      Buffer out = std::move(free_.back());
      free_.pop_back();
      return out;
    }
  }
  return {context_.device(), bytes};
}

void WeightQueue::push(int64_t version) {
  const Tensor values = model_.trained_values();
  Buffer bytes = room(values.bytes());
  context_.copy(as_values(bytes, values), values);
  context_.synchronize();
  const auto give_back = [this](Buffer* used) {
    const std::lock_guard lock(free_mutex_);
    free_.push_back(std::move(*used));
    delete used;
  };
  Kept kept{.version = version, .bytes = std::shared_ptr<Buffer>(new Buffer(std::move(bytes)), give_back)};
  const std::lock_guard lock(mutex_);
  if (keep_ == Keep::newest) kept_.clear();  // only now: the other thread may ask for the one before
  kept_.push_back(std::move(kept));
}

WeightQueue::Kept WeightQueue::take(int64_t version) {
  const std::lock_guard lock(mutex_);
  kept_.erase(kept_.begin(), std::ranges::find_if(kept_, [&](const Kept& of) { return of.version >= version; }));
  HONE_CHECK(!kept_.empty(), "weight queue: version ", version, " was not kept");
  Kept out = std::move(kept_.front());
  kept_.pop_front();
  return out;
}

int64_t WeightQueue::pop(int64_t version, Context& context, Model& copy) {
  const Kept kept = take(version);
  const Tensor values = copy.trained_values();
  HONE_CHECK(values.bytes() == kept.bytes->size(), "weight queue: a copy of ", values.bytes(), " bytes, the weights have ", kept.bytes->size());
  context.copy(values, as_values(*kept.bytes, values));
  context.synchronize();
  return kept.version;
}

}  // namespace hone
