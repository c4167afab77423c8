// sample_rows on the CPU without sorting the vocabulary: a bound finds the tokens that truncation may keep, and only
// the kept ones are sorted. Tokens, sums and draws equal those of the specification.
#include <cmath>

#include "core/base/parallel_for.h"
#include "core/base/rng.h"
#include "core/base/this_threads.h"
#include "kernels/cpu/features.h"
#include "kernels/lm_head/vocab_row.h"
#include "kernels/sampling/internal.h"

namespace hone {
namespace {

struct Candidate {
  int32_t id = 0;
  float z = 0, weight = 0;  // exp(z - max)
};

// One row's logits, and buffers that a thread reuses from row to row.
struct CandidateRow {
  const float* logits = nullptr;
  int64_t V = 0;
  float inv_temperature = 1;
  LogSumExp sums;
  std::vector<float> weights;
  std::vector<Candidate> candidates;

  float z(int64_t v) const { return logits[v] * inv_temperature; }
};

// Sorts the first `count` candidates, of which the first `ordered` are sorted already.
void order(std::vector<Candidate>& all, size_t ordered, size_t count) {
  const auto likelier = [](const Candidate& a, const Candidate& b) { return a.z != b.z ? a.z > b.z : a.id < b.id; };
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(ordered),
             end = all.begin() + static_cast<std::ptrdiff_t>(count);
  if (end != all.end()) std::nth_element(begin, end, all.end(), likelier);
  std::sort(begin, end, likelier);
}

template <class Items, class Weight>
double mass_of(const Items& items, Weight weight) {
  double sum = 0;
  for (const auto& item : items) sum += static_cast<double>(weight(item));
  return sum;
}

// Returns the index at which the cumulated weight passes a uniform draw from [0, mass).
template <class Items, class Weight>
size_t pick(const Items& items, double mass, const RowSamplingParams& params, Weight weight) {
  const double drawn = Rng(params.seed, params.stream, params.position).uniform() * mass;
  size_t i = 0;
  for (double sum = static_cast<double>(weight(items[0])); sum <= drawn; sum += static_cast<double>(weight(items[i])))
    ++i;
  return i;
}

template <class Wanted>
void gather(CandidateRow& row, Wanted wanted) {
  row.candidates.clear();
  for (int32_t v = 0; v < row.V; ++v)
    if (wanted(v)) row.candidates.push_back({v, row.z(v), row.weights[static_cast<size_t>(v)]});
}

// Gathers the k most likely tokens: a histogram of the distance from the maximum, in steps of 1, bounds that of the
// kth.
void gather_top_k(CandidateRow& row, int64_t k) {
  constexpr int steps = 64;
  const auto step = [&](int64_t v) {
    return static_cast<int>(std::min(row.sums.max - row.z(v), static_cast<float>(steps - 1)));
  };
  int64_t count[steps] = {};
  for (int64_t v = 0; v < row.V; ++v) ++count[step(v)];
  int furthest = 0;
  for (int64_t sum = count[0]; sum < k; sum += count[furthest]) ++furthest;
  gather(row, [&](int32_t v) { return step(v) <= furthest; });
  order(row.candidates, 0, static_cast<size_t>(k));
  row.candidates.resize(static_cast<size_t>(k));
}

// Keeps the shortest prefix of the most likely candidates that holds `wanted` of the mass.
void keep_mass(std::vector<Candidate>& candidates, double wanted, size_t ordered) {
  double sum = 0;
  size_t count = 0;
  while (count < candidates.size() && (count == 0 || sum < wanted)) {
    if (count == ordered) {
      ordered = std::min(candidates.size(), std::max<size_t>(256, 4 * ordered));
      order(candidates, count, ordered);
    }
    sum += static_cast<double>(candidates[count++].weight);
  }
  candidates.resize(count);
}

// Leaves in row.candidates the tokens that may be sampled, in ascending order of ids.
void truncate(CandidateRow& row, const RowSamplingParams& params) {
  const auto by_id = [](const Candidate& a, const Candidate& b) { return a.id < b.id; };
  auto& kept = row.candidates;
  if (params.top_k > 0 && params.top_k < row.V) {
    gather_top_k(row, params.top_k);
    if (params.top_p < 1) {
      std::vector<Candidate> sorted = kept;
      std::sort(sorted.begin(), sorted.end(), by_id);
      keep_mass(kept, static_cast<double>(params.top_p) * mass_of(sorted, [](const Candidate& c) { return c.weight; }),
                kept.size());
    }
  } else if (params.top_p < 1) {
    const double mass = mass_of(row.weights, [](float weight) { return weight; }),
                 top_p = static_cast<double>(params.top_p);
    // All tokens below the bound together hold at most half of the mass that top-p removes, so none of them is kept.
    const double bound = 0.5 * (1 - top_p) * mass / static_cast<double>(row.V);
    gather(row, [&](int32_t v) { return static_cast<double>(row.weights[static_cast<size_t>(v)]) >= bound; });
    keep_mass(kept, top_p * mass, 0);
  } else {
    gather(row, [&](int32_t v) { return row.weights[static_cast<size_t>(v)] >= params.min_p; });
  }
  std::erase_if(kept, [&](const Candidate& c) { return c.weight < params.min_p; });
  std::sort(kept.begin(), kept.end(), by_id);
}

struct Drawn {
  int32_t id = 0;
  float logp = 0, truncated_logp = 0, raw_logp = 0;
};

Drawn draw(CandidateRow& row, const RowSamplingParams& params) {
  Drawn out;
  double mass = 1;
  bool truncated = row.V > 1;
  if (params.temperature == 0) {
    out.id = static_cast<int32_t>(std::max_element(row.logits, row.logits + row.V) - row.logits);
  } else {
    row.weights.resize(static_cast<size_t>(row.V));
    head_row_weights(row.weights.data(), row.logits, row.V, row.inv_temperature, row.sums.max);
    if ((params.top_k > 0 && params.top_k < row.V) || params.top_p < 1 || params.min_p > 0) {
      const auto weight = [](const Candidate& c) { return c.weight; };
      truncate(row, params);
      truncated = static_cast<int64_t>(row.candidates.size()) < row.V;
      mass = mass_of(row.candidates, weight);
      out.id = row.candidates[pick(row.candidates, mass, params, weight)].id;
    } else {
      const auto weight = [](float w) { return w; };
      truncated = false;
      out.id = static_cast<int32_t>(pick(row.weights, mass_of(row.weights, weight), params, weight));
    }
  }
  out.logp = row.z(out.id) - row.sums.value();
  out.truncated_logp =
      truncated ? static_cast<float>(static_cast<double>(row.z(out.id) - row.sums.max) - std::log(mass)) : out.logp;
  out.raw_logp = row.logits[out.id] - (row.inv_temperature == 1 ? row.sums : log_sum_exp(row.logits, row.V, 1)).value();
  return out;
}

void run(Context&, const SampleRows& args) {
  check_sample_rows(args);
  constexpr int64_t worth_sharing = 16384;
  parallel_for(args.logits.dim(0), std::max<int64_t>(1, worth_sharing / args.logits.dim(1)),
               [&](int64_t begin, int64_t end) {
                 CandidateRow& row = this_threads<CandidateRow>();
                 for (int64_t r = begin; r < end; ++r) {
                   const RowSamplingParams how = params_of(args.params, r);
                   row.logits = args.logits.row<float>(r);
                   row.V = args.logits.dim(1);
                   row.inv_temperature = inverse_temperature(how.temperature);
                   row.sums = log_sum_exp(row.logits, row.V, row.inv_temperature);
                   check_row_sums(r, row.sums);
                   const Drawn out = draw(row, how);
                   args.ids.ptr<int32_t>()[r] = out.id;
                   args.logp.ptr<float>()[r] = out.logp;
                   args.truncated_logp.ptr<float>()[r] = out.truncated_logp;
                   args.raw_logp.ptr<float>()[r] = out.raw_logp;
                 }
               });
}

bool supports(const SampleRows&) { return has_fused_multiply_add(); }

[[maybe_unused]] const bool added = sample_rows.add({"selected", DeviceKind::cpu, run, 10, supports});

}  // namespace
}  // namespace hone
