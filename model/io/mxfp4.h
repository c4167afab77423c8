#pragma once
// MXFP4 (OCP Microscaling Formats 1.0), as gpt-oss's files have it: groups of 32 numbers of 4 bits (e2m1) in 16 bytes,
// low half first, and a shared scale of 8 bits (e8m0: 2^(scale - 127)).
#include <cstdint>
#include <span>

#include "core/device/dtype.h"

namespace hone {

inline constexpr int64_t mxfp4_group = 32, mxfp4_group_bytes = mxfp4_group / 2;

// Writes mxfp4_group numbers per scale to `to`. blocks: mxfp4_group_bytes per scale. The numbers are those of
// transformers' convert_moe_packed_tensors, which reads the scale 255 as 2^128 and not as NaN.
void decode_mxfp4(bf16* to, const uint8_t* blocks, std::span<const uint8_t> scales);

}  // namespace hone
