#pragma once
// Ops that add to a parameter's gradient once per element and call: a call sums from zero and adds the sum, with one
// rounding. So a call on A gives A + (a call on zeros), byte for byte.
//
// The gradient of a step is a left fold over the gradients of its micro-batches, each computed from zero
// (train/gradient_sum.h). An op that adds once may add straight into the step's sum. Any other op needs a buffer of its
// own for each micro-batch. What a product writes (kernels/grad_target.h) has the bits of the sum that it would add.
#include "kernels/op.h"

namespace hone {

// Declares that every body of `op` for this kind of device adds once. Bodies' files call it where they register:
//   [[maybe_unused]] const bool added = embedding_backward.add(...) && declare_adds_once(embedding_backward,
//   DeviceKind::cpu);
bool declare_adds_once(const OpBase& op, DeviceKind device);
bool adds_once(const OpBase& op, DeviceKind device);
// The declared ops of a kind of device, for tests.
std::vector<const OpBase*> ops_that_add_once(DeviceKind device);

}  // namespace hone
