// Walking a row of floats in vectors, its tail included. Compiled once for each instruction set.
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

// A whole vector of a row.
struct AllLanes {
  RowVector load(const float* from) const { return hn::LoadU(RowTag(), from); }
  void store(RowVector v, float* to) const { hn::StoreU(v, RowTag(), to); }
};
// The tail: lanes past it load as zero and are not stored.
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

// Calls body(i, lanes) for i = 0, row_lanes, ... below count; lanes.load and lanes.store reach what is left of the row there.
template <class Body>
HWY_INLINE void for_each_vector(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + row_lanes <= count; i += row_lanes) body(i, AllLanes());
  if (i < count) body(i, FirstLanes{count - i});
}

HWY_INLINE float sum_of(RowVector v) { return hn::GetLane(hn::SumOfLanes(RowTag(), v)); }

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
