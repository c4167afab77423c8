// CPU specification of the balance ops, in f64.
#include "kernels/moe/balance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

// What the losses need of a token's logits. probs: softmax, or sigmoid scores divided by their sum.
struct TokenProbs {
  std::vector<double> softmax, sigmoid, probs;
  double logsumexp = 0, sigmoid_sum = 0;

  void compute(const float* logits, int64_t E, RouterScores scores) {
    softmax.resize(static_cast<size_t>(E));
    const double most = *std::max_element(logits, logits + E);
    double sum = 0;
    for (int64_t e = 0; e < E; ++e) sum += softmax[static_cast<size_t>(e)] = std::exp(double{logits[e]} - most);
    for (double& p : softmax) p /= sum;
    logsumexp = most + std::log(sum);
    probs = softmax;
    if (scores != RouterScores::sigmoid) return;
    sigmoid.resize(static_cast<size_t>(E));
    sigmoid_sum = double{router_sum_floor};
    for (int64_t e = 0; e < E; ++e)
      sigmoid_sum += sigmoid[static_cast<size_t>(e)] = 1 / (1 + std::exp(-double{logits[e]}));
    for (size_t e = 0; e < sigmoid.size(); ++e) probs[e] = sigmoid[e] / sigmoid_sum;
  }
};

// Adds the sums of sequence s, whose tokens are [first, last).
void add_sequence(const RouterLoad& args, int64_t s, int64_t first, int64_t last) {
  const int64_t E = args.logits.dim(1), k = args.experts.dim(1);
  TokenProbs token;
  std::vector<double> counts(static_cast<size_t>(E)), sums(static_cast<size_t>(E));
  double z = 0, dropped = 0;
  for (int64_t t = first; t < last; ++t) {
    const double weight = args.weights.ptr<float>()[t];
    token.compute(args.logits.row<float>(t), E, args.scores);
    for (size_t e = 0; e < sums.size(); ++e) sums[e] += weight * token.probs[e];
    for (int64_t c = 0; c < k; ++c) {
      counts[static_cast<size_t>(args.experts.row<int32_t>(t)[c])] += weight;
      if (args.places && args.places.row<int32_t>(t)[c] < 0) dropped += weight;
    }
    z += weight * token.logsumexp * token.logsumexp;
  }
  for (int64_t e = 0; e < E; ++e) {
    args.load.row<float>(s)[e] += static_cast<float>(counts[static_cast<size_t>(e)]);
    args.probs.row<float>(s)[e] += static_cast<float>(sums[static_cast<size_t>(e)]);
  }
  args.rest.row<float>(s)[0] += static_cast<float>(z);
  args.rest.row<float>(s)[1] += static_cast<float>(dropped);
}

void load(Context&, const RouterLoad& args) {
  check_router_load(args);
  check_offsets(router_load, args.offsets, args.logits.dim(0));
  check_indices(router_load, "experts", args.experts.view({args.experts.size()}), args.logits.dim(1));
  const int32_t* at = args.offsets.ptr<int32_t>();
  parallel_for(args.load.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) add_sequence(args, s, at[s], at[s + 1]);
  });
}

double total(const float* row, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{row[i]};
  return sum;
}

void add_sums(Context&, const RouterSums& args) {
  check_router_sums(args);
  const int64_t S = args.load.dim(0), E = args.load.dim(1);
  std::vector<double> sums(static_cast<size_t>(3 + E));
  for (int64_t s = 0; s < S; ++s) {
    const float *loads = args.load.row<float>(s), *probs = args.probs.row<float>(s);
    const double weight = total(loads, E) / static_cast<double>(args.num_choices);
    double dot = 0;
    for (int64_t e = 0; e < E; ++e) {
      dot += double{loads[e]} * double{probs[e]};
      sums[static_cast<size_t>(3 + e)] += double{loads[e]};
    }
    if (weight > 0) sums[0] += static_cast<double>(E) * dot / weight;
    sums[1] += double{args.rest.row<float>(s)[0]};
    sums[2] += double{args.rest.row<float>(s)[1]};
  }
  for (int64_t i = 0; i < 3 + E; ++i) args.sums.ptr<float>()[i] += static_cast<float>(sums[static_cast<size_t>(i)]);
}

// With g_e = w balance E load_e / W: softmax dl_e = p_e (g_e - sum_j g_j p_j). Sigmoid scores s_e over their sum S:
// dl_e = s_e (1 - s_e) / S (g_e - sum_j g_j p_j). z: dl_e = 2 w z logsumexp softmax_e.
void losses_backward(Context&, const RouterLossesBackward& args) {
  check_router_losses_backward(args);
  check_offsets(router_losses_backward, args.offsets, args.logits.dim(0));
  const int64_t S = args.load.dim(0), E = args.logits.dim(1);
  const int32_t* at = args.offsets.ptr<int32_t>();
  parallel_for(S, 1, [&](int64_t begin, int64_t end) {
    TokenProbs token;
    std::vector<double> g(static_cast<size_t>(E));
    for (int64_t s = begin; s < end; ++s) {
      const float* loads = args.load.row<float>(s);
      const double all = total(loads, E) / static_cast<double>(args.num_choices);
      for (size_t e = 0; e < g.size(); ++e)
        g[e] = all > 0 ? double{args.balance} * static_cast<double>(E) * double{loads[e]} / all : 0;
      for (int64_t t = at[s]; t < at[s + 1]; ++t) {
        token.compute(args.logits.row<float>(t), E, args.scores);
        const double weight = args.weights.ptr<float>()[t];
        double mean = 0;
        for (size_t e = 0; e < g.size(); ++e) mean += g[e] * token.probs[e];
        for (size_t e = 0; e < g.size(); ++e) {
          const double slope = args.scores == RouterScores::sigmoid
                                   ? token.sigmoid[e] * (1 - token.sigmoid[e]) / token.sigmoid_sum
                                   : token.probs[e];
          args.dlogits.row<float>(t)[e] += static_cast<float>(
              weight * (slope * (g[e] - mean) + 2 * double{args.z} * token.logsumexp * token.softmax[e]));
        }
      }
    }
  });
}

void bias_update(Context&, const RouterBiasUpdate& args) {
  check_router_bias_update(args);
  const int64_t E = args.bias.dim(0);
  const float* loads = args.load.ptr<float>();
  const double mean = total(loads, E) / static_cast<double>(E);
  for (int64_t e = 0; e < E; ++e) {
    const double missing = mean - double{loads[e]};
    if (missing != 0) args.bias.ptr<float>()[e] += missing > 0 ? args.rate : -args.rate;
  }
}

[[maybe_unused]] const bool added = router_load.add({"specification", DeviceKind::cpu, load}) &&
                                    router_sums.add({"specification", DeviceKind::cpu, add_sums}) &&
                                    router_losses_backward.add({"specification", DeviceKind::cpu, losses_backward}) &&
                                    router_bias_update.add({"specification", DeviceKind::cpu, bias_update});

}  // namespace

void check_router_load(const RouterLoad& args) {
  const int64_t T = args.logits.dim(0), E = args.logits.dim(1), S = args.offsets.dim(0) - 1;
  check_shape(router_load, "logits", args.logits, {T, E});
  check_shape(router_load, "experts", args.experts, {T, args.experts.dim(1)}, DType::i32);
  check_shape(router_load, "offsets", args.offsets, {S + 1}, DType::i32);
  check_shape(router_load, "load", args.load, {S, E});
  check_shape(router_load, "probs", args.probs, {S, E});
  check_shape(router_load, "rest", args.rest, {S, 2});
  check_optional(router_load, "places", args.places, {T, args.experts.dim(1)}, DType::i32);
  check_shape(router_load, "weights", args.weights, {T});
  HONE_CHECK(args.experts.contiguous(), "router_load: rows of experts have gaps");
}
void check_router_sums(const RouterSums& args) {
  const int64_t S = args.load.dim(0), E = args.load.dim(1);
  check_shape(router_sums, "sums", args.sums, {3 + E});
  check_shape(router_sums, "load", args.load, {S, E});
  check_shape(router_sums, "probs", args.probs, {S, E});
  check_shape(router_sums, "rest", args.rest, {S, 2});
  HONE_CHECK(args.num_choices >= 1, "router_sums: num_choices is ", args.num_choices);
}
void check_router_losses_backward(const RouterLossesBackward& args) {
  const int64_t T = args.logits.dim(0), E = args.logits.dim(1), S = args.load.dim(0);
  check_shape(router_losses_backward, "logits", args.logits, {T, E});
  check_shape(router_losses_backward, "dlogits", args.dlogits, {T, E});
  check_shape(router_losses_backward, "load", args.load, {S, E});
  check_shape(router_losses_backward, "weights", args.weights, {T});
  check_shape(router_losses_backward, "offsets", args.offsets, {S + 1}, DType::i32);
  HONE_CHECK(args.num_choices >= 1, "router_losses_backward: num_choices is ", args.num_choices);
}
void check_router_bias_update(const RouterBiasUpdate& args) {
  check_shape(router_bias_update, "bias", args.bias, {args.bias.dim(0)});
  check_shape(router_bias_update, "load", args.load, {args.bias.dim(0)});
}

}  // namespace hone
