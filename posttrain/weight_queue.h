#pragma once
// WeightQueue: versions of the learner's weights on their way to a copy that another thread reads. Neither side waits for the other.
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "core/model/model.h"

namespace hone {

class WeightQueue {
 public:
  enum class Keep : uint8_t { all, newest };
  // Both are the caller's and must outlive it. The model is the learner's: what it trains is what goes through the queue (with adapters those alone).
  WeightQueue(Context& context, Model& model, Keep keep) : context_(context), model_(model), keep_(keep) {}

  // The learner's thread: keeps the weights as they are as this version, which is above those before. They may be changed when it returns.
  void push(int64_t version);
  // The other thread: the oldest kept version of `version` or more goes into the copy, those before are dropped; returns which one it was. The copy
  // has the shape of the learner's model and may be on another device.
  int64_t pop(int64_t version, Context& context, Model& copy);

 private:
  struct Kept {
    int64_t version = 0;
    Buffer bytes;
  };
  void drop(std::deque<Kept>::iterator end);  // those before it; under the mutex

  Context& context_;
  Model& model_;
  Keep keep_;
  std::mutex mutex_;
  std::deque<Kept> kept_;     // oldest first
  std::vector<Buffer> free_;  // memory to use again
};

}  // namespace hone
