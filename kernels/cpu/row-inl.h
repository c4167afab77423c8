// Loops over a row of floats in vectors, the tail included. Compiled once for each instruction set.
#if defined(HONE_KERNELS_ROW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ROW_INL_H
#undef HONE_KERNELS_ROW_INL_H
#else
#define HONE_KERNELS_ROW_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace hone::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using RowTag = hn::CappedTag<float, 16>;
using RowVector = hn::Vec<RowTag>;
constexpr int64_t row_lanes = hn::MaxLanes(RowTag());

// A full vector of a row.
struct AllLanes {
  RowVector load(const float* from) const { return hn::LoadU(RowTag(), from); }
  void store(RowVector v, float* to) const { hn::StoreU(v, RowTag(), to); }
};
// The tail of a row: lanes past the end load zero and are not stored.
struct FirstLanes {
  int64_t count;
  RowVector load(const float* from) const {
    alignas(64) float lane[row_lanes] = {};
    std::copy_n(from, count, lane);
    return hn::Load(RowTag(), lane);
  }
  void store(RowVector v, float* to) const {
    alignas(64) float lane[row_lanes];
    hn::Store(v, RowTag(), lane);
    std::copy_n(lane, count, to);
  }
};

// Calls body(i, lanes) for i = 0, row_lanes, ... below count. lanes.load and lanes.store access the elements from i to
// i + row_lanes that exist.
template <class Body>
HWY_INLINE void for_each_vector(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + row_lanes <= count; i += row_lanes) body(i, AllLanes());
  if (i < count) body(i, FirstLanes{count - i});
}

// A sum over a row whose order does not depend on the vector width: element i is added to lane i mod 16, and the 16
// lanes are folded in halves at the end.
class RowSum {
 public:
  RowSum() {
    for (RowVector& part : parts_) part = hn::Zero(RowTag());
  }
  // The lanes of elements i to i + row_lanes.
  RowVector& at(int64_t i) { return parts_[i / row_lanes % parts]; }
  float total() const {
    if constexpr (parts == 1)
      return hn::GetLane(hn::SumOfLanes(RowTag(), parts_[0]));  // this instruction set folds in halves
    alignas(64) float lane[16];
    for (int64_t p = 0; p < parts; ++p) hn::Store(parts_[p], RowTag(), lane + p * row_lanes);
    for (int64_t half = 8; half > 0; half /= 2)
      for (int64_t i = 0; i < half; ++i) lane[i] += lane[i + half];
    return lane[0];
  }

 private:
  static constexpr int64_t parts = 16 / row_lanes;
  RowVector parts_[parts];
};

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
