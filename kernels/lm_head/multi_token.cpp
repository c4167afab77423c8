// CPU specification of the ops of multi-token prediction.
#include "kernels/lm_head/multi_token.h"

#include "kernels/check_shape.h"

namespace hone {
namespace {

// The token `ahead` after token t, or -1 if the sequence of t has none. A later sequence starts at position 0 again.
int64_t token_ahead(const MultiTokenShift& args, int64_t t, int64_t ahead) {
  const int32_t* positions = args.positions.ptr<int32_t>();
  const int64_t to = t + ahead;
  return to < args.positions.size() && positions[to] == positions[t] + ahead ? to : -1;
}

void shift(Context&, const MultiTokenShift& args) {
  check_multi_token(args);
  const int64_t T = args.tokens.size(), R = args.rows.size();
  check_indices(multi_token_shift, "rows", args.rows, T);
  const int32_t* tokens = args.tokens.ptr<int32_t>();
  const float* weights = args.weights.ptr<float>();
  for (int64_t t = 0; t < T; ++t) {
    const int64_t input = token_ahead(args, t, args.distance), target = token_ahead(args, t, args.distance + 1);
    args.next.ptr<int32_t>()[t] = tokens[input >= 0 ? input : t];
    args.next_weights.ptr<float>()[t] = target >= 0 ? weights[target] : 0;
  }
  for (int64_t r = 0; r < R; ++r) {
    const int64_t row = args.rows.ptr<int32_t>()[r], target = token_ahead(args, row, 1), from = row - args.distance % T;
    const bool known = target >= 0 && args.positions.ptr<int32_t>()[row] >= args.distance;
    args.from.ptr<int32_t>()[r] = static_cast<int32_t>(from < 0 ? from + T : from);
    args.targets.ptr<int32_t>()[r] = known ? tokens[target] : 0;
    args.target_weights.ptr<float>()[r] = known ? weights[target] : 0;
    args.dlogp.ptr<float>()[r] = known ? -args.factor * weights[target] : 0;
  }
}

void add_sums(Context&, const MultiTokenSums& args) {
  check_multi_token(args);
  double loss = 0, hits = 0, total = 0;
  for (int64_t r = 0; r < args.weights.size(); ++r) {
    const double weight = args.weights.ptr<float>()[r];
    if (weight == 0) continue;
    loss -= weight * args.logp.ptr<float>()[r];
    hits += weight * args.hit.ptr<float>()[r];
    total += weight;
  }
  float* sums = args.sums.ptr<float>();
  sums[0] += static_cast<float>(loss);
  sums[1] += static_cast<float>(hits);
  sums[2] += static_cast<float>(total);
}

[[maybe_unused]] const bool added = multi_token_shift.add({"specification", DeviceKind::cpu, shift}) &&
                                    multi_token_sums.add({"specification", DeviceKind::cpu, add_sums});

}  // namespace

void check_multi_token(const MultiTokenShift& args) {
  const int64_t T = args.tokens.size(), R = args.rows.size();
  check_shape(multi_token_shift, "tokens", args.tokens, {T}, DType::i32);
  check_shape(multi_token_shift, "positions", args.positions, {T}, DType::i32);
  check_shape(multi_token_shift, "weights", args.weights, {T});
  check_shape(multi_token_shift, "rows", args.rows, {R}, DType::i32);
  check_shape(multi_token_shift, "next", args.next, {T}, DType::i32);
  check_shape(multi_token_shift, "next_weights", args.next_weights, {T});
  check_shape(multi_token_shift, "from", args.from, {R}, DType::i32);
  check_shape(multi_token_shift, "targets", args.targets, {R}, DType::i32);
  check_shape(multi_token_shift, "target_weights", args.target_weights, {R});
  check_shape(multi_token_shift, "dlogp", args.dlogp, {R});
  HONE_CHECK(args.distance >= 1, "multi_token_shift: distance is ", args.distance, ", wants 1 or more");
}

void check_multi_token(const MultiTokenSums& args) {
  const int64_t R = args.weights.size();
  check_shape(multi_token_sums, "sums", args.sums, {3});
  check_shape(multi_token_sums, "logp", args.logp, {R});
  check_shape(multi_token_sums, "hit", args.hit, {R});
  check_shape(multi_token_sums, "weights", args.weights, {R});
}

}  // namespace hone
