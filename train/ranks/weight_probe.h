#pragma once
// A digest of a few weights, other ones each step. Ranks compare it: each has all weights, and a rank that missed a
// part of an update is found soon.
#include <cstdint>
#include <span>

#include "core/device/tensor.h"

namespace hone {

// The weights to look at in a step: at most `count` adjacent elements of one of the tensors [n], each of which may be
// chosen in proportion to its size. Empty if there are no weights.
Tensor probed_weights(std::span<const Tensor> weights, int64_t step, int64_t count = 4096);

// FNV-1a of a tensor's bytes, on the host.
uint64_t digest_of(Tensor on_host);

}  // namespace hone
