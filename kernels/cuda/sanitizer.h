#pragma once
// What initcheck of compute-sanitizer cannot see for itself: memory that Hopper's copy engine writes (cp.async.bulk),
// in cuBLASLt's kernels, too.
#include "core/device/device.h"

namespace hone {

// Tells a tool that loaded itself into the program that what is queued on the stream writes all numbers of x, whatever
// was there; without one does nothing.
void mark_initialized(Context& context, const Tensor& x);

}  // namespace hone
