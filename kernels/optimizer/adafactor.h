#pragma once
// The steps of Adafactor (Shazeer and Stern 2018), in the operations of transformers.optimization.Adafactor. Sums over
// rows, columns and whole parameters are f64.
#include "kernels/op.h"

namespace hone {

struct AdafactorStep {
  float beta2 = 0;     // 1 - step^decay_rate
  float eps = 1e-30f;  // added to the square of each gradient
};
// The means over rows and columns of the squared gradient move by 1 - beta2; update = gradient / sqrt(their product).
struct AdafactorFactored {
  Tensor update;    // f32 [rows, cols], written
  Tensor row, col;  // f32 [rows], [cols], updated
  Tensor grad;      // f32 [rows, cols]
  Tensor clip;      // f32 [1]: factor on each gradient
  AdafactorStep step;
  static constexpr auto access =
      op_access(written(&AdafactorFactored::update), updated(&AdafactorFactored::row, &AdafactorFactored::col),
                read(&AdafactorFactored::grad, &AdafactorFactored::clip));
};
inline constinit Op<AdafactorFactored> adafactor_factored{"adafactor_factored"};

// The same for a vector, whose squares have a mean each.
struct AdafactorVector {
  Tensor update;  // f32 [n], written
  Tensor square;  // f32 [n], updated
  Tensor grad;    // f32 [n]
  Tensor clip;    // f32 [1]
  AdafactorStep step;
  static constexpr auto access = op_access(written(&AdafactorVector::update), updated(&AdafactorVector::square),
                                           read(&AdafactorVector::grad, &AdafactorVector::clip));
};
inline constinit Op<AdafactorVector> adafactor_vector{"adafactor_vector"};

// Applies a part of an update. With rms(x) = sqrt(sum of squares / size):
//   rate = step rate * max(eps, rms(value)), or the step rate without value_squares
//   u = update / max(1, rms(update) / clip_threshold) * rate;  with mean: mean = beta1 mean + (1 - beta1) u, u = mean
//   value = value - weight_decay * rate * value - u
struct AdafactorApply {
  Tensor value;            // f32 [n], updated
  Tensor rounded{};        // bf16 [n], written: the new values rounded to nearest even; or empty
  Tensor mean{};           // f32 [n], updated; empty: no first moment
  Tensor update;           // f32 [n]
  Tensor squares;          // f64 [1]: of the whole parameter's update
  Tensor value_squares{};  // f64 [1]: of its values; empty: the rate is absolute
  int64_t size = 0;        // elements of the whole parameter
  float rate = 0, eps = 1e-3f, clip_threshold = 1, beta1 = 0, weight_decay = 0;
  static constexpr auto access =
      op_access(updated(&AdafactorApply::value, &AdafactorApply::mean), written(&AdafactorApply::rounded),
                read(&AdafactorApply::update, &AdafactorApply::squares, &AdafactorApply::value_squares));
};
inline constinit Op<AdafactorApply> adafactor_apply{"adafactor_apply"};

}  // namespace hone
