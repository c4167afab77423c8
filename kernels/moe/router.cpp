// CPU specification of the router, in f64 per token.
#include "kernels/moe/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

constexpr int64_t tokens_per_piece = 16;

// The scores of a token's experts: softmax or sigmoid of its logits.
void scores_of(const float* logits, int64_t E, RouterScores kind, std::vector<double>& scores) {
  scores.resize(static_cast<size_t>(E));
  if (kind == RouterScores::sigmoid) {
    for (int64_t e = 0; e < E; ++e) scores[static_cast<size_t>(e)] = 1 / (1 + std::exp(-double{logits[e]}));
    return;
  }
  const double most = *std::max_element(logits, logits + E);
  double sum = 0;
  for (int64_t e = 0; e < E; ++e) sum += scores[static_cast<size_t>(e)] = std::exp(double{logits[e]} - most);
  for (double& score : scores) score /= sum;
}

// Marks the best `count` of `keys` one by one: pick(index). The first of equals wins. A NaN is worse than any number.
template <class Pick>
void pick_best(const std::vector<float>& keys, int64_t count, Pick pick) {
  std::vector<bool> taken(keys.size());
  for (int64_t c = 0; c < count; ++c) {
    size_t best = keys.size();
    for (size_t i = 0; i < keys.size(); ++i) {
      if (taken[i]) continue;
      if (best == keys.size() || keys[i] > keys[best] || (std::isnan(keys[best]) && !std::isnan(keys[i]))) best = i;
    }
    taken[best] = true;
    pick(best);
  }
}

// What the choice compares, per expert. Experts outside of the best groups get -infinity.
std::vector<float> keys_of(const RouterForward& args, const float* logits, const std::vector<double>& scores) {
  const RouterRule& rule = args.rule;
  const size_t E = scores.size(), groups = static_cast<size_t>(rule.num_groups), width = E / groups;
  std::vector<float> keys(logits, logits + E);
  if (!args.bias && groups == 1) return keys;
  for (size_t e = 0; e < E; ++e)
    keys[e] = static_cast<float>(scores[e]) + (args.bias ? args.bias.ptr<float>()[e] : 0.0f);
  if (groups == 1) return keys;
  std::vector<float> ranks(groups);
  for (size_t g = 0; g < groups; ++g) {
    float best = -std::numeric_limits<float>::infinity(), second = best;
    for (size_t e = g * width; e < (g + 1) * width; ++e) {
      if (keys[e] > best) {
        second = best;
        best = keys[e];
      } else if (keys[e] > second) {
        second = keys[e];
      }
    }
    ranks[g] = rule.scores == RouterScores::sigmoid && width > 1 ? best + second : best;
  }
  std::vector<bool> open(groups);
  pick_best(ranks, rule.top_groups, [&](size_t g) { open[g] = true; });
  for (size_t e = 0; e < E; ++e)
    if (!open[e / width]) keys[e] = -std::numeric_limits<float>::infinity();
  return keys;
}

// The chosen scores of a token, before `normalize` and `scale`.
std::vector<double> chosen_scores(const float* logits, const int32_t* experts, int64_t k,
                                  const std::vector<double>& scores, RouterScores kind) {
  std::vector<double> chosen(static_cast<size_t>(k));
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t c = 0; c < k; ++c) most = std::max(most, double{logits[experts[c]]});
  for (int64_t c = 0; c < k; ++c) {
    double& score = chosen[static_cast<size_t>(c)];
    score = kind == RouterScores::softmax_of_top ? std::exp(double{logits[experts[c]]} - most)
                                                 : scores[static_cast<size_t>(experts[c])];
    sum += score;
  }
  if (kind == RouterScores::softmax_of_top)
    for (double& score : chosen) score /= sum;
  return chosen;
}

double normalizer(const std::vector<double>& chosen, bool normalize) {
  if (!normalize) return 1;
  double sum = double{router_sum_floor};
  for (const double score : chosen) sum += score;
  return sum;
}

void forward(Context&, const RouterForward& args) {
  check_router_forward(args);
  const int64_t k = args.experts.dim(1), E = args.logits.dim(1);
  parallel_for(args.logits.dim(0), tokens_per_piece, [&](int64_t begin, int64_t end) {
    std::vector<double> scores;
    for (int64_t t = begin; t < end; ++t) {
      const float* logits = args.logits.row<float>(t);
      int32_t* experts = args.experts.row<int32_t>(t);
      scores_of(logits, E, args.rule.scores, scores);
      int64_t count = 0;
      pick_best(keys_of(args, logits, scores), k, [&](size_t e) { experts[count++] = static_cast<int32_t>(e); });
      const std::vector<double> chosen = chosen_scores(logits, experts, k, scores, args.rule.scores);
      const double sum = normalizer(chosen, args.rule.normalize);
      for (int64_t c = 0; c < k; ++c)
        args.weights.row<float>(t)[c] =
            static_cast<float>(chosen[static_cast<size_t>(c)] / sum * double{args.rule.scale});
    }
  });
}

// With s the chosen scores and S their sum: w_c = scale s_c / S, so ds_c = scale (dw_c - sum_j dw_j s_j / S) / S.
// Softmax: dl_e = p_e (ds_e - sum_j ds_j p_j). Sigmoid: dl_e = ds_e p_e (1 - p_e).
void token_gradient(const RouterBackward& args, int64_t t, std::vector<double>& scores) {
  const int64_t k = args.experts.dim(1), E = args.logits.dim(1);
  const RouterScores kind = args.rule.scores;
  const float *logits = args.logits.row<float>(t), *dweights = args.dweights.row<float>(t);
  const int32_t* experts = args.experts.row<int32_t>(t);
  float* out = args.dlogits.row<float>(t);
  scores_of(logits, E, kind, scores);
  const std::vector<double> chosen = chosen_scores(logits, experts, k, scores, kind);
  const double sum = normalizer(chosen, args.rule.normalize);
  double mean = 0, dot = 0;
  if (args.rule.normalize)
    for (int64_t c = 0; c < k; ++c) mean += double{dweights[c]} * chosen[static_cast<size_t>(c)] / sum;
  std::vector<double> dscores(static_cast<size_t>(k));
  for (int64_t c = 0; c < k; ++c) {
    dscores[static_cast<size_t>(c)] = double{args.rule.scale} * (double{dweights[c]} - mean) / sum;
    dot += dscores[static_cast<size_t>(c)] * chosen[static_cast<size_t>(c)];
  }
  for (int64_t e = 0; e < E; ++e)
    out[e] = kind == RouterScores::softmax ? static_cast<float>(-scores[static_cast<size_t>(e)] * dot) : 0.0f;
  for (int64_t c = 0; c < k; ++c) {
    const double score = chosen[static_cast<size_t>(c)], ds = dscores[static_cast<size_t>(c)];
    out[experts[c]] = static_cast<float>(kind == RouterScores::sigmoid ? ds * score * (1 - score) : score * (ds - dot));
  }
}

void backward(Context&, const RouterBackward& args) {
  check_router_backward(args);
  check_indices(router_backward, "experts", args.experts.view({args.experts.size()}), args.logits.dim(1));
  parallel_for(args.logits.dim(0), tokens_per_piece, [&](int64_t begin, int64_t end) {
    std::vector<double> scores;
    for (int64_t t = begin; t < end; ++t) token_gradient(args, t, scores);
  });
}

void check_rule(const OpBase& op, const RouterRule& rule, int64_t E, int64_t k) {
  HONE_CHECK(k >= 1 && k <= E, op.name(), ": chooses ", k, " of ", E, " experts");
  HONE_CHECK(rule.num_groups >= 1 && E % rule.num_groups == 0, op.name(), ": ", E, " experts do not form ",
             rule.num_groups, " groups of equal size");
  HONE_CHECK(rule.top_groups >= 1 && rule.top_groups <= rule.num_groups, op.name(), ": top_groups is ", rule.top_groups,
             " of ", rule.num_groups, " groups");
  HONE_CHECK(k <= E / rule.num_groups * rule.top_groups, op.name(), ": ", rule.top_groups, " groups of ",
             E / rule.num_groups, " experts have fewer than ", k, " choices");
}

[[maybe_unused]] const bool added = router_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    router_backward.add({"specification", DeviceKind::cpu, backward});

}  // namespace

void check_router_forward(const RouterForward& args) {
  const int64_t T = args.logits.dim(0), E = args.logits.dim(1), k = args.experts.dim(1);
  check_shape(router_forward, "logits", args.logits, {T, E});
  check_shape(router_forward, "experts", args.experts, {T, k}, DType::i32);
  check_shape(router_forward, "weights", args.weights, {T, k});
  check_optional(router_forward, "bias", args.bias, {E});
  check_rule(router_forward, args.rule, E, k);
}

void check_router_backward(const RouterBackward& args) {
  const int64_t T = args.logits.dim(0), E = args.logits.dim(1), k = args.experts.dim(1);
  check_shape(router_backward, "logits", args.logits, {T, E});
  check_shape(router_backward, "dlogits", args.dlogits, {T, E});
  check_shape(router_backward, "experts", args.experts, {T, k}, DType::i32);
  check_shape(router_backward, "dweights", args.dweights, {T, k});
  check_rule(router_backward, args.rule, E, k);
}

}  // namespace hone
