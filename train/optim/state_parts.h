#pragma once
// Names and assembly of tensors of a state (an optimizer's, a reference's weights) that are saved in parts:
// exp_avg.NAME for a whole tensor, exp_avg.NAME[128:256] for its elements 128 to 255. A checkpoint of any number of
// ranks can be read by any other.
#include <map>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/io/checkpoint.h"

namespace hone {

// The name of elements [first, first + count) of a tensor of `size` elements.
std::string part_name(const std::string& name, int64_t first, int64_t count, int64_t size);

// Tensors of a section by the name of the whole tensor.
class StateParts {
 public:
  // The tensors must outlive this object. Throws a SectionTensorError for a name with a malformed or wrong range. of:
  // the state in messages.
  explicit StateParts(const StateSection& section, std::string of = "optimizer state");
  // Copies elements [first, first + out.size()) of the tensor `name`, which has `size` elements, to out [n]. Throws a
  // SectionTensorError if the section has other numbers, lacks some, or has some twice. dtype_key: the recipe's key
  // that decides the dtype, for messages.
  void copy(Context& context, const std::string& name, int64_t first, int64_t size, Tensor out,
            const char* dtype_key = "dtype") const;

 private:
  struct Part {
    int64_t first;
    Tensor tensor;
    bool whole;
  };
  std::string of_;
  std::map<std::string, std::vector<Part>, std::less<>> parts_;  // by first element
};

}  // namespace hone
