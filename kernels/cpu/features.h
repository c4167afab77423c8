#pragma once
// Whether this processor runs the vectorised bodies: without fused multiply-add in hardware their bits would not be the
// specification's.

namespace hone {

bool has_fused_multiply_add();

}  // namespace hone
