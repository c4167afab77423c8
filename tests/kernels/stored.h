#pragma once
// Tensors of .safetensors files as Floats.
#include "core/io/safetensors.h"
#include "tests/kernels/op_check.h"

namespace hone::test {

// The f32 tensor `name`, viewed with dims of the same size.
inline Floats stored(const SafetensorsReader& file, std::string_view name, std::initializer_list<int64_t> dims) {
  const Tensor from = file.at(name);
  Floats out(dims);
  HONE_CHECK(from.dtype == DType::f32 && from.size() == out.size(), name, " has ", from.size(), " elements, wants ",
             out.size());
  std::memcpy(out.tensor().data, from.data, from.bytes());
  return out;
}

}  // namespace hone::test
