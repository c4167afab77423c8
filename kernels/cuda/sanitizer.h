#pragma once
// Tells compute-sanitizer's initcheck about writes that it cannot see: writes by TMA (cp.async.bulk), also in
// cuBLASLt's kernels. Without the tool the functions do nothing.
#include "core/device/device.h"
#include "kernels/access.h"

namespace hone {

// True if the tool has loaded itself into the process.
bool sanitizer_loaded();

// The work queued on the stream writes all elements of x.
void mark_initialized(Context& context, const Tensor& x);

// Marks the tensors that an op writes, as its argument struct describes. In-place operands are left out: they were
// initialized before.
template <class Args>
void mark_written(Context& context, const Args& args) {
  if (!sanitizer_loaded()) return;
  for_each_access(args, [&](const Tensor& tensor, const TensorAccess& use) {
    if (use.access != Access::written || use.rows) return;
    bool in_place = false;
    for_each_access(args, [&](const Tensor& other, const TensorAccess& other_use) {
      in_place = in_place || (other_use.access != Access::written && other.data == tensor.data);
    });
    if (!in_place) mark_initialized(context, use.range);
  });
}

}  // namespace hone
