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

void load(Context&, const RouterLoad& args) {
  check_router_load(args);
  check_offsets(router_load, args.offsets, args.logits.dim(0));
  const int64_t S = args.load.dim(0), E = args.logits.dim(1), k = args.experts.dim(1);
  check_indices(router_load, "experts", args.experts.view({args.experts.size()}), E);
  const int32_t* at = args.offsets.ptr<int32_t>();
  parallel_for(S, 1, [&](int64_t begin, int64_t end) {
    TokenProbs token;
    for (int64_t s = begin; s < end; ++s) {
      std::vector<double> counts(static_cast<size_t>(E)), sums(static_cast<size_t>(E));
      double z = 0;
      for (int64_t t = at[s]; t < at[s + 1]; ++t) {
        token.compute(args.logits.row<float>(t), E, args.scores);
        for (size_t e = 0; e < sums.size(); ++e) sums[e] += token.probs[e];
        for (int64_t c = 0; c < k; ++c) ++counts[static_cast<size_t>(args.experts.row<int32_t>(t)[c])];
        z += token.logsumexp * token.logsumexp;
      }
      for (int64_t e = 0; e < E; ++e) {
        args.load.row<float>(s)[e] += static_cast<float>(counts[static_cast<size_t>(e)]);
        args.probs.row<float>(s)[e] += static_cast<float>(sums[static_cast<size_t>(e)]);
      }
      args.z.ptr<float>()[s] += static_cast<float>(z);
    }
  });
}

double total(const float* row, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{row[i]};
  return sum;
}

void losses(Context&, const RouterLosses& args) {
  check_router_losses(args);
  const int64_t S = args.load.dim(0), E = args.load.dim(1);
  double balance = 0, z = 0;
  for (int64_t s = 0; s < S; ++s) {
    const float *loads = args.load.row<float>(s), *probs = args.probs.row<float>(s);
    const double tokens = total(loads, E) / static_cast<double>(args.num_choices);
    double dot = 0;
    for (int64_t e = 0; e < E; ++e) dot += double{loads[e]} * double{probs[e]};
    if (tokens > 0) balance += static_cast<double>(E) * dot / tokens;
    z += double{args.z.ptr<float>()[s]};
  }
  args.losses.ptr<float>()[0] += static_cast<float>(balance);
  args.losses.ptr<float>()[1] += static_cast<float>(z);
}

// With g_e = balance E load_e / n: softmax dl_e = p_e (g_e - sum_j g_j p_j). Sigmoid scores s_e over their sum S:
// dl_e = s_e (1 - s_e) / S (g_e - sum_j g_j p_j). z: dl_e = 2 z logsumexp softmax_e.
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
      const double tokens = total(loads, E) / static_cast<double>(args.num_choices);
      for (size_t e = 0; e < g.size(); ++e)
        g[e] = tokens > 0 ? double{args.balance} * static_cast<double>(E) * double{loads[e]} / tokens : 0;
      for (int64_t t = at[s]; t < at[s + 1]; ++t) {
        token.compute(args.logits.row<float>(t), E, args.scores);
        double mean = 0;
        for (size_t e = 0; e < g.size(); ++e) mean += g[e] * token.probs[e];
        for (size_t e = 0; e < g.size(); ++e) {
          const double slope = args.scores == RouterScores::sigmoid
                                   ? token.sigmoid[e] * (1 - token.sigmoid[e]) / token.sigmoid_sum
                                   : token.probs[e];
          args.dlogits.row<float>(t)[e] +=
              static_cast<float>(slope * (g[e] - mean) + 2 * double{args.z} * token.logsumexp * token.softmax[e]);
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
                                    router_losses.add({"specification", DeviceKind::cpu, losses}) &&
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
  check_shape(router_load, "z", args.z, {S});
  HONE_CHECK(args.experts.contiguous(), "router_load: rows of experts have gaps");
}
void check_router_losses(const RouterLosses& args) {
  const int64_t S = args.load.dim(0), E = args.load.dim(1);
  check_shape(router_losses, "losses", args.losses, {2});
  check_shape(router_losses, "load", args.load, {S, E});
  check_shape(router_losses, "probs", args.probs, {S, E});
  check_shape(router_losses, "z", args.z, {S});
  HONE_CHECK(args.num_choices >= 1, "router_losses: num_choices is ", args.num_choices);
}
void check_router_losses_backward(const RouterLossesBackward& args) {
  const int64_t T = args.logits.dim(0), E = args.logits.dim(1), S = args.load.dim(0);
  check_shape(router_losses_backward, "logits", args.logits, {T, E});
  check_shape(router_losses_backward, "dlogits", args.dlogits, {T, E});
  check_shape(router_losses_backward, "load", args.load, {S, E});
  check_shape(router_losses_backward, "offsets", args.offsets, {S + 1}, DType::i32);
  HONE_CHECK(args.num_choices >= 1, "router_losses_backward: num_choices is ", args.num_choices);
}
void check_router_bias_update(const RouterBiasUpdate& args) {
  check_shape(router_bias_update, "bias", args.bias, {args.bias.dim(0)});
  check_shape(router_bias_update, "load", args.load, {args.bias.dim(0)});
}

}  // namespace hone
