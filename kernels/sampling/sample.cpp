// CPU specification of sample_rows: sorts every row completely.
#include "kernels/sampling/sample.h"

#include <cmath>
#include <numeric>

#include "core/base/rng.h"
#include "kernels/cpu/exp.h"
#include "kernels/lm_head/logsumexp.h"
#include "kernels/sampling/internal.h"

namespace hone {
namespace {

struct Weighted {
  int32_t id = 0;
  float z = 0, weight = 0;  // exp(z - max)
};

bool by_id(const Weighted& a, const Weighted& b) { return a.id < b.id; }
bool likelier(const Weighted& a, const Weighted& b) { return a.z != b.z ? a.z > b.z : a.id < b.id; }

// Sum in ascending order of ids.
double mass_of(std::vector<Weighted> tokens) {
  std::sort(tokens.begin(), tokens.end(), by_id);
  return std::accumulate(tokens.begin(), tokens.end(), 0.0,
                         [](double sum, const Weighted& token) { return sum + static_cast<double>(token.weight); });
}

void sample_row(const Tensor& logits, int64_t r, const RowSamplingParams& params, int32_t& id, float& logp,
                float& truncated_logp, float& raw_logp) {
  const float* row = logits.row<float>(r);
  const int64_t V = logits.dim(1);
  const float inv_temperature = inverse_temperature(params.temperature);
  const LogSumExp sums = log_sum_exp(row, V, inv_temperature);
  check_row_sums(r, sums);

  std::vector<Weighted> kept(static_cast<size_t>(V));
  for (int32_t v = 0; v < V; ++v)
    kept[static_cast<size_t>(v)] = {v, row[v] * inv_temperature, exp_f32(row[v] * inv_temperature - sums.max)};
  std::sort(kept.begin(), kept.end(), likelier);

  if (params.temperature == 0) kept.resize(1);
  if (params.top_k > 0 && params.top_k < V) kept.resize(std::min(kept.size(), static_cast<size_t>(params.top_k)));
  if (params.top_p < 1) {
    const double wanted = static_cast<double>(params.top_p) * mass_of(kept);
    double sum = 0;
    size_t count = 0;
    while (count < kept.size() && (count == 0 || sum < wanted)) sum += static_cast<double>(kept[count++].weight);
    kept.resize(count);
  }
  std::erase_if(kept, [&](const Weighted& token) { return token.weight < params.min_p; });  // a weight is p / max p

  const bool truncated = static_cast<int64_t>(kept.size()) < V;
  std::sort(kept.begin(), kept.end(), by_id);

  const double mass = mass_of(kept), drawn = Rng(params.seed, params.stream, params.position).uniform() *
                                             mass;  // below mass, also after rounding
  size_t chosen = 0;
  for (double sum = static_cast<double>(kept[0].weight); sum <= drawn; sum += static_cast<double>(kept[chosen].weight))
    ++chosen;

  id = kept[chosen].id;
  logp = kept[chosen].z - sums.value();
  truncated_logp =
      truncated ? static_cast<float>(static_cast<double>(kept[chosen].z - sums.max) - std::log(mass)) : logp;
  raw_logp = row[id] - (inv_temperature == 1 ? sums : log_sum_exp(row, V, 1)).value();
}

void run(Context&, const SampleRows& args) {
  check_sample_rows(args);
  for (int64_t r = 0; r < args.logits.dim(0); ++r)
    sample_row(args.logits, r, params_of(args.params, r), args.ids.ptr<int32_t>()[r], args.logp.ptr<float>()[r],
               args.truncated_logp.ptr<float>()[r], args.raw_logp.ptr<float>()[r]);
}

[[maybe_unused]] const bool added = sample_rows.add({"specification", DeviceKind::cpu, run});

}  // namespace
}  // namespace hone
