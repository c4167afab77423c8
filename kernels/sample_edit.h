#pragma once
// Changes single logits before a draw: biases, penalties, ids that must not be drawn.
#include "kernels/op.h"

namespace hone {

struct LogitEdit {
  int32_t row = 0, id = 0;
  float bias = 0;        // -infinity: the id has no probability
  float repetition = 1;  // above 0
  float minus = 0;
};

// With z = logits[row, id] + bias, logits[row, id] becomes (z > 0 ? z / repetition : z * repetition) - minus, each operation rounded to f32.
// logits [S, V] f32; edits: u8 [E * sizeof(LogitEdit)], a (row, id) at most once; one outside of the logits is an Error, on a GPU it does nothing.
inline constinit Op<void(Tensor logits, Tensor edits)> edit_logits{"edit_logits"};

}  // namespace hone
