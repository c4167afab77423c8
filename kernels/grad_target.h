#pragma once
// GradTarget: the gradient of a parameter as a matrix product gets it. The first product of a micro-batch writes it,
// and later ones add: so nobody zeroes the memory, and the product does not read zeros. Param::grad_target() hands it
// out (model/model.h).
#include <concepts>

#include "core/device/device.h"
#include "kernels/access.h"

namespace hone {

struct GradTarget {
  Tensor sum;              // f32; empty: the parameter is frozen
  bool accumulate = true;  // false: each element is written, and one that gets nothing becomes 0

  GradTarget() = default;
  // A tensor, or what converts to one, is added to.
  template <class T>
  requires std::convertible_to<const T&, Tensor> GradTarget(const T& tensor, bool add = true)
      : sum(tensor), accumulate(add) {}
  explicit operator bool() const { return static_cast<bool>(sum); }

  // For an op that runs in blocks of rows, each with a product of its own: the target of the block that begins at
  // first_row.
  GradTarget of_block(int64_t first_row) const { return {sum, accumulate || first_row > 0}; }
  // The contribution of a call without rows.
  void add_nothing(Context& context) const {
    if (sum && !accumulate) context.zero(sum);
  }

  static constexpr auto access = op_access(added_if(&GradTarget::accumulate, &GradTarget::sum));
};

}  // namespace hone
