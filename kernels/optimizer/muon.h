#pragma once
// The steps of Muon (Jordan et al. 2024) around its matrix products (train/optim/newton_schulz.h).
#include "kernels/op.h"

namespace hone {

struct MuonMomentumStep {
  float momentum = 0.95f;
  bool nesterov = true;
  uint64_t seed = 0, stream = 0;  // of the rounding of a bf16 buffer
};
// buffer moves to the gradient by 1 - momentum. update is the buffer, or with nesterov a second step of that kind from
// the gradient to the buffer. The operations are those of torch.optim.Muon. A bf16 buffer is rounded stochastically
// after the exact update; it draws as the m of adamw_update does.
struct MuonMomentum {
  Tensor update;      // f32 [n], written
  Tensor buffer;      // f32 or bf16 [n], updated
  Tensor grad;        // f32 [n]
  Tensor clip;        // f32 [1]: factor on each gradient
  int64_t first = 0;  // place of element 0 in the optimizer's whole list
  MuonMomentumStep step;
  static constexpr auto access = op_access(written(&MuonMomentum::update), updated(&MuonMomentum::buffer),
                                           read(&MuonMomentum::grad, &MuonMomentum::clip));
};
inline constinit Op<MuonMomentum> muon_momentum{"muon_momentum"};

// x = update / max(norm, eps), in x's dtype. x is [rows, cols], or transposed [cols, rows].
struct MuonNormalize {
  Tensor x;        // f32 or bf16 [rows, cols] or [cols, rows], written
  Tensor update;   // f32 [rows, cols]
  Tensor squares;  // f64 [1]: the square of the norm
  float eps = 1e-7f;
  bool transposed = false;
  static constexpr auto access =
      op_access(written(&MuonNormalize::x), read(&MuonNormalize::update, &MuonNormalize::squares));
};
inline constinit Op<MuonNormalize> muon_normalize{"muon_normalize"};

// y = a y + b x, each f32 or bf16, in f32, rounded to nearest even.
struct ScaledSum {
  Tensor y;  // [n], updated
  Tensor x;  // [n]
  float a = 1, b = 1;
  static constexpr auto access = op_access(updated(&ScaledSum::y), read(&ScaledSum::x));
};
inline constinit Op<ScaledSum> scaled_sum{"scaled_sum"};

// value = keep * value - rate * direction for elements [first, first + n) of a matrix [rows, cols].
struct MuonApply {
  Tensor value;      // f32 [n], updated
  Tensor rounded{};  // bf16 [n], written: the new values rounded to nearest even; or empty
  Tensor direction;  // f32 or bf16 [rows, cols], or transposed [cols, rows]
  int64_t first = 0;
  bool transposed = false;
  float keep = 1, rate = 0;
  static constexpr auto access =
      op_access(updated(&MuonApply::value), written(&MuonApply::rounded), read(&MuonApply::direction));
};
inline constinit Op<MuonApply> muon_apply{"muon_apply"};

}  // namespace hone
