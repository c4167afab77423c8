#pragma once
// Features of this processor.

namespace hone {

// Vectorized bodies need fused multiply-add in hardware: without it their bits differ from the specification's.
bool has_fused_multiply_add();

}  // namespace hone
