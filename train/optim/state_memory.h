#pragma once
// StateMemory: the arrays of an optimizer in one buffer, and the names under which they are saved.
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/io/checkpoint.h"

namespace hone {

// First reserve() each array, then allocate() once, then name() what is saved.
class StateMemory {
 public:
  // Returns the number of the array.
  size_t reserve(DType dtype, int64_t count);
  // Allocates all arrays, zeroed.
  void allocate(Context& context);
  Tensor array(size_t number) const;  // [count]
  // `values` are elements [first, first + n) of the tensor `name`, which has `size` elements. saved = false: another
  // rank saves the same numbers.
  void name(std::string name, int64_t first, int64_t size, Tensor values, bool saved = true);
  int64_t bytes() const { return static_cast<int64_t>(bytes_.size()); }

  // The section refers to host memory of this object until the next save().
  void save(StateSection& section) const;
  void load(const StateSection& section) const;

 private:
  struct Array {
    DType dtype;
    int64_t count;
    size_t at;  // bytes
  };
  struct Named {
    std::string name;
    int64_t first, size;
    Tensor values;
    bool saved;
  };
  Context* context_ = nullptr;
  std::vector<Array> arrays_;
  std::vector<Named> named_;
  size_t total_ = 0;
  Buffer bytes_;
  mutable std::vector<std::byte> host_copy_;
};

}  // namespace hone
