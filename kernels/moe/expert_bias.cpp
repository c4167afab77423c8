// CPU specification of the biases of experts.
#include "kernels/moe/expert_bias.h"

#include <algorithm>
#include <vector>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"
#include "kernels/moe/grouped_gemm.h"

namespace hone {
namespace {

constexpr int64_t choices_per_piece = 16;

void forward(Context&, const ExpertBiasForward& args) {
  check_expert_bias(args);
  check_grouped_rows(expert_bias_forward, args.offsets, args.y.dim(0));
  const int64_t E = args.bias.dim(0), N = args.y.dim(1);
  const int32_t* offsets = args.offsets.ptr<int32_t>();
  parallel_for(E + 1, 1, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      const int64_t last = e < E ? offsets[e + 1] : args.y.dim(0);
      for (int64_t r = offsets[e]; r < last; ++r)
        if (e < E)
          std::copy_n(args.bias.row<float>(e), N, args.y.row<float>(r));
        else
          std::fill_n(args.y.row<float>(r), N, 0.0f);
    }
  });
}

void backward(Context&, const ExpertBiasBackward& args) {
  check_expert_bias(args);
  check_grouped_rows(expert_bias_backward, args.offsets, args.dy.dim(0));
  const int64_t E = args.dbias.dim(0), N = args.dy.dim(1), choices = args.weights.size();
  const int32_t* offsets = args.offsets.ptr<int32_t>();
  for (int64_t r = 0; args.weights && r < offsets[E]; ++r) {
    const int32_t choice = args.order.ptr<int32_t>()[r];
    HONE_CHECK(choice >= 0 && choice < choices, "expert_bias_backward: order has ", choice, " of ", choices,
               " choices");
  }
  parallel_for(E, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> sum(static_cast<size_t>(N));
    for (int64_t e = begin; e < end; ++e) {
      std::ranges::fill(sum, 0.0);
      for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
        const double weight = args.weights ? args.weights.ptr<float>()[args.order.ptr<int32_t>()[r]] : 1.0f;
        for (int64_t i = 0; i < N; ++i) sum[static_cast<size_t>(i)] += weight * args.dy.row<float>(r)[i];
      }
      for (int64_t i = 0; i < N; ++i) args.dbias.row<float>(e)[i] += static_cast<float>(sum[static_cast<size_t>(i)]);
    }
  });
}

void weights(Context&, const ExpertBiasWeights& args) {
  check_expert_bias(args);
  const int64_t T = args.places.dim(0), k = args.places.dim(1), N = args.dy.dim(1), P = args.dy.dim(0);
  check_indices(expert_bias_weights, "experts", args.experts.view({T * k}), args.bias.dim(0));
  for (const int32_t place : args.places.as<int32_t>())
    HONE_CHECK(place >= -1 && place < P, "expert_bias_weights: places has ", place, " of ", P, " positions");
  parallel_for(T, choices_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t c = 0; c < k; ++c) {
        const int32_t place = args.places.row<int32_t>(t)[c];
        if (place < 0) continue;
        const float *dy = args.dy.row<float>(place), *bias = args.bias.row<float>(args.experts.row<int32_t>(t)[c]);
        double sum = 0;
        for (int64_t i = 0; i < N; ++i) sum += double{dy[i]} * bias[i];
        args.dweights.row<float>(t)[c] += static_cast<float>(sum);
      }
  });
}

[[maybe_unused]] const bool added = expert_bias_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    expert_bias_backward.add({"specification", DeviceKind::cpu, backward}) &&
                                    expert_bias_weights.add({"specification", DeviceKind::cpu, weights});

}  // namespace

void check_expert_bias(const ExpertBiasForward& args) {
  const int64_t E = args.bias.dim(0), N = args.y.dim(1);
  check_shape(expert_bias_forward, "y", args.y, {args.y.dim(0), N}, args.bias.dtype);
  check_shape(expert_bias_forward, "bias", args.bias, {E, N}, args.bias.dtype);
  check_shape(expert_bias_forward, "offsets", args.offsets, {E + 1}, DType::i32);
}

void check_expert_bias(const ExpertBiasBackward& args) {
  const int64_t E = args.dbias.dim(0), N = args.dy.dim(1), P = args.dy.dim(0);
  check_shape(expert_bias_backward, "dy", args.dy, {P, N}, args.dy.dtype);
  check_shape(expert_bias_backward, "dbias", args.dbias, {E, N});
  check_shape(expert_bias_backward, "offsets", args.offsets, {E + 1}, DType::i32);
  if (!args.weights) return;
  check_shape(expert_bias_backward, "weights", args.weights, {args.weights.dim(0), args.weights.dim(1)});
  check_shape(expert_bias_backward, "order", args.order, {P}, DType::i32);
  HONE_CHECK(args.weights.contiguous(), "expert_bias_backward: rows of weights have gaps");
}

void check_expert_bias(const ExpertBiasWeights& args) {
  const int64_t T = args.places.dim(0), k = args.places.dim(1), N = args.dy.dim(1);
  check_shape(expert_bias_weights, "dy", args.dy, {args.dy.dim(0), N}, args.bias.dtype);
  check_shape(expert_bias_weights, "bias", args.bias, {args.bias.dim(0), N}, args.bias.dtype);
  check_shape(expert_bias_weights, "places", args.places, {T, k}, DType::i32);
  check_shape(expert_bias_weights, "experts", args.experts, {T, k}, DType::i32);
  check_shape(expert_bias_weights, "dweights", args.dweights, {T, k});
  HONE_CHECK(args.places.contiguous() && args.experts.contiguous(), "expert_bias_weights: rows of choices have gaps");
}

}  // namespace hone
