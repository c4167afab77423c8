#pragma once
// LayerNorm (Ba et al. 2016): y[r, :] = (x[r, :] - mean[r]) * rstd[r] * w + b with
// rstd[r] = 1 / sqrt(var(x[r, :]) + eps), variance over dim without correction.
#include "kernels/op.h"

namespace hone {

struct LayernormForward {
  Tensor y;               // [rows, dim], written
  Tensor mean{}, rstd{};  // [rows] f32, written; or both empty
  Tensor x;               // [rows, dim]
  Tensor w;               // [dim]
  Tensor b{};             // [dim] or empty
  float eps;
  static constexpr auto access =
      op_access(written(&LayernormForward::y, &LayernormForward::mean, &LayernormForward::rstd),
                read(&LayernormForward::x, &LayernormForward::w, &LayernormForward::b));
};
inline constinit Op<LayernormForward> layernorm_forward{"layernorm_forward"};

struct LayernormBackward {
  Tensor dx;          // [rows, dim], added to if accumulate, else written
  Tensor dw{}, db{};  // [dim] f32, added to; dw is empty for a frozen weight, db without a bias
  Tensor dy, x;       // [rows, dim]
  Tensor mean, rstd;  // of layernorm_forward
  Tensor w;           // [dim]
  bool accumulate = false;
  static constexpr auto access = op_access(added_once_if(&LayernormBackward::accumulate, &LayernormBackward::dx),
                                           added(&LayernormBackward::dw, &LayernormBackward::db),
                                           read(&LayernormBackward::dy, &LayernormBackward::x, &LayernormBackward::mean,
                                                &LayernormBackward::rstd, &LayernormBackward::w));
};
inline constinit Op<LayernormBackward> layernorm_backward{"layernorm_backward"};

}  // namespace hone
