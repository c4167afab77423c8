// Shape, dtype, index and offset checks of op arguments.
#include "kernels/check_shape.h"

#include <algorithm>

namespace hone {

static std::string described(DType dtype, std::span<const int64_t> dims) {
  std::string out = concat(name_of(dtype), " [");
  for (size_t i = 0; i < dims.size(); ++i) out += concat(i ? ", " : "", dims[i]);
  return out + "]";
}

void check_shape(const OpBase& op, const char* name, const Tensor& x, std::initializer_list<int64_t> dims,
                 DType dtype) {
  const std::span<const int64_t> expected(dims.begin(), dims.size());
  HONE_CHECK(x.dtype == dtype && std::ranges::equal(x.dims(), expected), op.name(), ": ", name, " is ",
             described(x.dtype, x.dims()), ", wants ", described(dtype, expected));
}

void check_indices(const OpBase& op, const char* name, const Tensor& indices, int64_t limit) {
  for (int64_t i = 0; i < indices.dim(0); ++i) {
    const int32_t index = indices.ptr<int32_t>()[i];
    HONE_CHECK(index >= 0 && index < limit, op.name(), ": ", name, "[", i, "] is ", index,
               ", wants at least 0 and less than ", limit);
  }
}

void check_offsets(const OpBase& op, const Tensor& offsets, int64_t total) {
  HONE_CHECK(offsets.rank == 1 && offsets.dtype == DType::i32 && offsets.dim(0) >= 1, op.name(), ": offsets is ",
             described(offsets.dtype, offsets.dims()), ", wants i32 [sequences + 1]");
  const std::span<const int32_t> at = offsets.as<int32_t>();
  HONE_CHECK(at.front() == 0 && at.back() == total, op.name(), ": offsets go from ", at.front(), " to ", at.back(),
             ", wants 0 to ", total);
  for (size_t s = 1; s < at.size(); ++s)
    HONE_CHECK(at[s] >= at[s - 1], op.name(), ": offsets[", s, "] is ", at[s], " after ", at[s - 1]);
}

}  // namespace hone
