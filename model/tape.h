#pragma once
// What forward leaves for backward, last in, first out: backward is forward read bottom to top. One tape for each
// micro-batch in flight.
#include <initializer_list>
#include <vector>

#include "core/device/device.h"

namespace hone {

// costly: backward makes again what a pass over rows can make from what is kept: outputs of norms and activations,
// rotated queries and keys.
enum class SavePolicy : uint8_t { all, selective };

class Tape {
 public:
  explicit Tape(Device& device, SavePolicy keep = SavePolicy::all) : arena_(device), keep_(keep) {}
  bool saves_all() const { return keep_ == SavePolicy::all; }
  // Room for `bytes` in one piece; the tape is empty.
  void reserve(size_t bytes) { arena_.reserve(bytes); }

  // A new tensor on the tape, to be pop()ped by backward.
  Tensor push(DType dtype, std::initializer_list<int64_t> dims) {
    entries_.push_back({arena_.mark(), {}});
    return entries_.back().tensor = arena_.take(dtype, dims);
  }
  // The last one pushed. Its memory stays valid until the next push.
  Tensor pop() {
    HONE_CHECK(!entries_.empty(), "tape: backward asks for more than forward left");
    const Entry last = entries_.back();
    entries_.pop_back();
    arena_.release(last.before);
    return last.tensor;
  }
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  size_t peak_bytes() const { return arena_.peak_bytes(); }
  size_t capacity_bytes() const { return arena_.capacity_bytes(); }
  void clear() {
    entries_.clear();
    arena_.release({});
  }

 private:
  struct Entry {
    Arena::Mark before;
    Tensor tensor;
  };
  Arena arena_;
  SavePolicy keep_;
  std::vector<Entry> entries_;
};

// Where a layer's forward puts what its backward will read: on the tape when training, in scratch (until the caller's
// ScratchScope ends) otherwise.
inline Tensor save(Context& context, Tape* tape, DType dtype, std::initializer_list<int64_t> dims) {
  return tape ? tape->push(dtype, dims) : context.scratch().take(dtype, dims);
}
// The same for what backward can make again: restore_if_all() is empty where the tape does not have it.
inline Tensor save_if_all(Context& context, Tape* tape, DType dtype, std::initializer_list<int64_t> dims) {
  return save(context, tape && tape->saves_all() ? tape : nullptr, dtype, dims);
}
inline Tensor restore_if_all(Tape& tape) { return tape.saves_all() ? tape.pop() : Tensor(); }

}  // namespace hone
