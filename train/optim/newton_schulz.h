#pragma once
// Orthogonalization of a matrix by the quintic Newton-Schulz iteration of Muon (Jordan et al. 2024):
//
//   X = G / |G|;  steps times:  A = X X^T, B = b A + c A A, X = a X + B X
//
// It works on the tall orientation [n, m], n >= m, where A = X^T X is m x m. Products are the GEMM ops of the backward
// pass (kernels/gemm/gemm.h): their bits depend on the shapes alone, so ranks that orthogonalize the same matrix get
// the same bits. dtype f32: all numbers are f32. bf16 (on a GPU): X, B and each product are rounded to bf16 and added
// up in f32, as in the authors' code; A is rounded once.
#include "core/device/device.h"

namespace hone {

struct NewtonSchulz {
  float a = 3.4445f, b = -4.7750f, c = 2.0315f;
  int64_t steps = 5;
  float eps = 1e-7f;  // lower bound of |G|
  DType dtype = DType::f32;
};

struct Orthogonal {
  Tensor direction;         // [rows, cols], or [cols, rows] if transposed
  bool transposed = false;  // true if the matrix has fewer rows than columns
};
// update: f32 [rows, cols]. The result is in scratch memory.
Orthogonal orthogonalize(Context& context, Tensor update, const NewtonSchulz& settings);

}  // namespace hone
