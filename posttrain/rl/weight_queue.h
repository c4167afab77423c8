#pragma once
// WeightQueue: versions of the learner's weights on their way to whoever draws from them, on another thread. Neither
// side waits for the other.
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "core/device/buffer_pool.h"
#include "model/model.h"

namespace hone {

class WeightQueue {
 public:
  enum class Keep : uint8_t { all, newest };
  // Both are the caller's and must outlive it. The model is the learner's: what it trains is what goes through the
  // queue (with adapters those alone).
  WeightQueue(Context& context, Model& model, Keep keep)
      : context_(context), model_(model), keep_(keep), room_(context.device(), MemoryKind::device) {}

  // The learner's thread: keeps the weights as they are as this version, which is above those before. They may be
  // changed when it returns.
  void push(int64_t version);
  struct Kept {
    int64_t version = 0;
    std::shared_ptr<const Buffer>
        bytes;  // on the learner's device; its memory is used again once nobody has it any more
  };
  // The other thread: the oldest kept version of `version` or more; it and those before are dropped here.
  Kept take(int64_t version);
  // Takes it into a copy, which has the shape of the learner's model and may be on another device; returns which one it
  // was.
  int64_t pop(int64_t version, Context& context, Model& copy);

 private:
  Context& context_;
  Model& model_;
  Keep keep_;
  BufferPool room_;
  std::mutex mutex_;
  std::deque<Kept> kept_;  // oldest first
};

}  // namespace hone
