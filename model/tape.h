#pragma once
// Tape: the stack of tensors that forward saves and backward pops. One tape per micro-batch in flight.
#include <initializer_list>
#include <vector>

#include "core/device/device.h"

namespace hone {

// selective: backward recomputes what one cheap pass over saved rows gives: outputs of norms and activations, rotated
// queries and keys.
enum class SavePolicy : uint8_t { all, selective };

class Tape {
 public:
  explicit Tape(Device& device, SavePolicy keep = SavePolicy::all) : arena_(device), keep_(keep) {}
  bool saves_all() const { return keep_ == SavePolicy::all; }
  // Reserves `bytes` in one block. The tape must be empty.
  void reserve(size_t bytes) { arena_.reserve(bytes); }

  // A new tensor on the tape; backward pops it.
  Tensor push(DType dtype, std::initializer_list<int64_t> dims) {
    entries_.push_back({arena_.mark(), {}});
    return entries_.back().tensor = arena_.take(dtype, dims);
  }
  // The tensor pushed last. Its memory is valid until the next push.
  Tensor pop() {
    HONE_CHECK(!entries_.empty(), "tape: backward pops more tensors than forward pushed");
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

// Memory for a tensor that backward reads: on the tape when training, else in scratch until the caller's ScratchScope
// ends.
inline Tensor save(Context& context, Tape* tape, DType dtype, std::initializer_list<int64_t> dims) {
  return tape ? tape->push(dtype, dims) : context.scratch().take(dtype, dims);
}
// The same for tensors that backward can recompute. restore_if_all() returns an empty tensor if the tape has none.
inline Tensor save_if_all(Context& context, Tape* tape, DType dtype, std::initializer_list<int64_t> dims) {
  return save(context, tape && tape->saves_all() ? tape : nullptr, dtype, dims);
}
inline Tensor restore_if_all(Tape& tape) { return tape.saves_all() ? tape.pop() : Tensor(); }

}  // namespace hone
