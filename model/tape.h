#pragma once
// Tape: the stack of tensors that forward saves and backward pops. One tape per micro-batch in flight. A module writes
// its tensors to a Frame; its backward reads them from a Saved, in the same order.
#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "core/device/device.h"

namespace hone {

// selective: backward recomputes what one cheap pass over saved rows gives: outputs of norms and activations, rotated
// queries and keys.
enum class SavePolicy : uint8_t { all, selective };

// The tensors of a frame, in the order of saving. Their memory is valid until the next push.
class Saved {
 public:
  explicit Saved(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {}
  Tensor next() {
    HONE_CHECK(at_ < tensors_.size(), "tape: backward reads more tensors than forward saved");
    return tensors_[at_++];
  }

 private:
  std::vector<Tensor> tensors_;
  size_t at_ = 0;
};

class Tape {
 public:
  explicit Tape(Device& device, SavePolicy keep = SavePolicy::all) : arena_(device), keep_(keep) {}
  bool saves_all() const { return keep_ == SavePolicy::all; }
  // Reserves `bytes` in one block. The tape must be empty.
  void reserve(size_t bytes) { arena_.reserve(bytes); }
  void free_memory() {
    clear();
    arena_.free();
  }

  // A new tensor on the tape; backward pops it.
  Tensor push(DType dtype, std::initializer_list<int64_t> dims) { return push(dtype, std::span(dims)); }
  Tensor push(DType dtype, std::span<const int64_t> dims) {
    entries_.push_back({arena_.mark(), {}});
    return entries_.back().tensor = arena_.take(dtype, dims);
  }
  void push_empty() { entries_.push_back({arena_.mark(), {}}); }
  // The tensor pushed last. Its memory is valid until the next push.
  Tensor pop() {
    HONE_CHECK(!entries_.empty(), "tape: backward pops more tensors than forward pushed");
    const Entry last = entries_.back();
    entries_.pop_back();
    arena_.release(last.before);
    return last.tensor;
  }
  // What is pushed from now on, until the next frame, belongs to one frame. pop_frame() pops the last one.
  void open_frame() { frames_.push_back(entries_.size()); }
  Saved pop_frame() {
    HONE_CHECK(!frames_.empty(), "tape: backward pops more frames than forward opened");
    const size_t first = frames_.back();
    frames_.pop_back();
    std::vector<Tensor> tensors;
    while (entries_.size() > first) tensors.push_back(pop());
    std::ranges::reverse(tensors);
    return Saved(std::move(tensors));
  }
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  size_t peak_bytes() const { return arena_.peak_bytes(); }
  size_t capacity_bytes() const { return arena_.capacity_bytes(); }
  void clear() {
    entries_.clear();
    frames_.clear();
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
  std::vector<size_t> frames_;  // index of the first entry of each open frame
};

// Where a module's forward saves: on the tape when training, else in scratch memory until the caller's ScratchScope
// ends. A module opens no frame inside another's; nested modules save in the same one.
class Frame {
 public:
  Frame(Context& context, Tape* tape) : context_(context), tape_(tape) {
    if (tape_) tape_->open_frame();
  }
  // A tensor of the forward pass that backward reads.
  Tensor save(DType dtype, std::initializer_list<int64_t> dims) { return save(dtype, std::span(dims)); }
  Tensor save(DType dtype, std::span<const int64_t> dims) {
    return tape_ ? tape_->push(dtype, dims) : context_.scratch().take(dtype, dims);
  }
  // The same for one that backward can recompute: Saved gives an empty tensor if the policy is selective.
  Tensor save_cheap(DType dtype, std::initializer_list<int64_t> dims) { return save_cheap(dtype, std::span(dims)); }
  Tensor save_cheap(DType dtype, std::span<const int64_t> dims) {
    if (!tape_ || tape_->saves_all()) return save(dtype, dims);
    tape_->push_empty();
    return context_.scratch().take(dtype, dims);
  }
  // A tensor that only backward reads; empty without a tape.
  Tensor save_for_backward(DType dtype, std::initializer_list<int64_t> dims) {
    return tape_ ? tape_->push(dtype, dims) : Tensor();
  }

 private:
  Context& context_;
  Tape* tape_;
};

}  // namespace hone
