// CPU specification of the dispatch ops.
#include "kernels/moe/dispatch.h"

#include <algorithm>
#include <vector>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

constexpr int64_t rows_per_piece = 16;

Tensor flat(const Tensor& x) { return x.view({x.size()}); }

void dispatch(Context&, const MoeDispatch& args) {
  check_moe_dispatch(args);
  const int64_t E = args.offsets.dim(0) - 1, count = args.experts.size();
  check_indices(moe_dispatch, "experts", flat(args.experts), E);
  const int32_t* experts = args.experts.ptr<int32_t>();
  const int64_t most = args.capacity > 0 ? args.capacity : count;
  std::vector<int64_t> sizes(static_cast<size_t>(E));
  for (int64_t i = 0; i < count; ++i) ++sizes[static_cast<size_t>(experts[i])];
  int32_t* offsets = args.offsets.ptr<int32_t>();
  offsets[0] = 0;
  for (int64_t e = 0; e < E; ++e)
    offsets[e + 1] = offsets[e] + static_cast<int32_t>(std::min(sizes[static_cast<size_t>(e)], most));
  std::fill_n(args.order.ptr<int32_t>(), count, -1);
  std::vector<int32_t> next(offsets, offsets + E);
  for (int64_t i = 0; i < count; ++i) {
    int32_t& position = next[static_cast<size_t>(experts[i])];
    const bool dropped = position == offsets[experts[i] + 1];
    args.places.ptr<int32_t>()[i] = dropped ? -1 : position;
    if (!dropped) args.order.ptr<int32_t>()[position++] = static_cast<int32_t>(i);
  }
}

void gather(Context&, const MoeGather& args) {
  check_moe_gather(args);
  const int64_t P = args.y.dim(0), D = args.y.dim(1), k = args.x.dim(0) > 0 ? P / args.x.dim(0) : 1;
  for (const int32_t choice : args.order.as<int32_t>())
    HONE_CHECK(choice >= -1 && choice < P, "moe_gather: order has ", choice, " of ", P, " choices");
  parallel_for(P, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int32_t choice = args.order.ptr<int32_t>()[p];
      if (choice < 0)
        std::fill_n(args.y.row<float>(p), D, 0.0f);
      else
        std::copy_n(args.x.row<float>(choice / k), D, args.y.row<float>(p));
    }
  });
}

void check_places(const OpBase& op, const Tensor& places, int64_t P) {
  for (const int32_t place : places.as<int32_t>())
    HONE_CHECK(place >= -1 && place < P, op.name(), ": places has ", place, " of ", P, " positions");
}

void combine(Context&, const MoeCombine& args) {
  check_moe_combine(args);
  check_places(moe_combine, args.places, args.x.dim(0));
  const int64_t D = args.y.dim(1), k = args.places.dim(1);
  parallel_for(args.y.dim(0), rows_per_piece, [&](int64_t begin, int64_t end) {
    std::vector<float> sum(static_cast<size_t>(D));
    for (int64_t t = begin; t < end; ++t) {
      std::ranges::fill(sum, 0.0f);
      for (int64_t c = 0; c < k; ++c) {
        const int32_t place = args.places.row<int32_t>(t)[c];
        if (place < 0) continue;
        const float weight = args.weights ? args.weights.row<float>(t)[c] : 1.0f;
        const float* from = args.x.row<float>(place);
        for (int64_t i = 0; i < D; ++i) sum[static_cast<size_t>(i)] += weight * from[i];
      }
      for (int64_t i = 0; i < D; ++i)
        args.y.row<float>(t)[i] = sum[static_cast<size_t>(i)] + (args.residual ? args.residual.row<float>(t)[i] : 0.0f);
    }
  });
}

void weight_backward(Context&, const MoeWeightBackward& args) {
  check_moe_weight_backward(args);
  check_places(moe_weight_backward, args.places, args.g.dim(0));
  const int64_t F = args.g.dim(1), k = args.places.dim(1);
  parallel_for(args.places.dim(0), rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t c = 0; c < k; ++c) {
        const int32_t place = args.places.row<int32_t>(t)[c];
        double sum = 0;
        if (place >= 0) {
          const float weight = args.weights.row<float>(t)[c];
          float *g = args.g.row<float>(place), *h = args.h.row<float>(place);
          for (int64_t i = 0; i < F; ++i) sum += double{g[i]} * double{h[i]};
          for (int64_t i = 0; i < F; ++i) g[i] *= weight;
          for (int64_t i = 0; i < F; ++i) h[i] *= weight;
        }
        args.dweights.row<float>(t)[c] = static_cast<float>(sum);
      }
  });
}

[[maybe_unused]] const bool added = moe_dispatch.add({"specification", DeviceKind::cpu, dispatch}) &&
                                    moe_gather.add({"specification", DeviceKind::cpu, gather}) &&
                                    moe_combine.add({"specification", DeviceKind::cpu, combine}) &&
                                    moe_weight_backward.add({"specification", DeviceKind::cpu, weight_backward});

}  // namespace

void check_moe_dispatch(const MoeDispatch& args) {
  const int64_t T = args.experts.dim(0), k = args.experts.dim(1);
  check_shape(moe_dispatch, "experts", args.experts, {T, k}, DType::i32);
  check_shape(moe_dispatch, "order", args.order, {T * k}, DType::i32);
  check_shape(moe_dispatch, "places", args.places, {T, k}, DType::i32);
  check_shape(moe_dispatch, "offsets", args.offsets, {args.offsets.dim(0)}, DType::i32);
  HONE_CHECK(args.offsets.dim(0) >= 2, "moe_dispatch: there are no experts");
  HONE_CHECK(args.experts.contiguous() && args.places.contiguous(), "moe_dispatch: rows of choices have gaps");
}

void check_moe_gather(const MoeGather& args) {
  const int64_t P = args.y.dim(0), D = args.y.dim(1), T = args.x.dim(0);
  check_shape(moe_gather, "y", args.y, {P, D}, args.x.dtype);
  check_shape(moe_gather, "x", args.x, {T, D}, args.x.dtype);
  check_shape(moe_gather, "order", args.order, {P}, DType::i32);
  HONE_CHECK(T == 0 ? P == 0 : P % T == 0, "moe_gather: ", P, " positions for ", T, " tokens");
}

void check_moe_combine(const MoeCombine& args) {
  const int64_t T = args.y.dim(0), D = args.y.dim(1), k = args.places.dim(1);
  check_shape(moe_combine, "y", args.y, {T, D}, args.x.dtype);
  check_shape(moe_combine, "x", args.x, {args.x.dim(0), D}, args.x.dtype);
  check_shape(moe_combine, "places", args.places, {T, k}, DType::i32);
  check_optional(moe_combine, "weights", args.weights, {T, k});
  check_optional(moe_combine, "residual", args.residual, {T, D}, args.x.dtype);
  HONE_CHECK(args.places.contiguous(), "moe_combine: rows of places have gaps");
}

void check_moe_weight_backward(const MoeWeightBackward& args) {
  const int64_t T = args.places.dim(0), k = args.places.dim(1), P = args.g.dim(0), F = args.g.dim(1);
  check_shape(moe_weight_backward, "places", args.places, {T, k}, DType::i32);
  check_shape(moe_weight_backward, "weights", args.weights, {T, k});
  check_shape(moe_weight_backward, "dweights", args.dweights, {T, k});
  check_shape(moe_weight_backward, "g", args.g, {P, F}, args.h.dtype);
  check_shape(moe_weight_backward, "h", args.h, {P, F}, args.h.dtype);
  HONE_CHECK(args.places.contiguous(), "moe_weight_backward: rows of places have gaps");
}

}  // namespace hone
