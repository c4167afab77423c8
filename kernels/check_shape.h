#pragma once
// Checks of a body's arguments.
#include <initializer_list>

#include "kernels/op.h"

namespace hone {

// Throws Error unless x has this dtype and these dims: "rmsnorm_forward: w is f32 [64], wants f32 [128]".
void check_shape(const OpBase& op, const char* name, const Tensor& x, std::initializer_list<int64_t> dims,
                 DType dtype = DType::f32);
// The same, for an argument that may be empty.
inline void check_optional(const OpBase& op, const char* name, const Tensor& x, std::initializer_list<int64_t> dims,
                           DType dtype = DType::f32) {
  if (x) check_shape(op, name, x, dims, dtype);
}
// Throws Error unless each value of an i32 host tensor lies in [0, limit). Indices are checked before their use.
void check_indices(const OpBase& op, const char* name, const Tensor& indices, int64_t limit);
// Throws Error unless offsets [S + 1] i32 starts at 0, never falls and ends at total.
void check_offsets(const OpBase& op, const Tensor& offsets, int64_t total);

}  // namespace hone
