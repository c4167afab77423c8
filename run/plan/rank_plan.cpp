#include "run/plan/rank_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace hone {
namespace {

// a + times * (b - c), for each kind of exchange.
ExchangeCounts combine(const ExchangeCounts& a, int64_t times, const ExchangeCounts& b, const ExchangeCounts& c) {
  ExchangeCounts out = a;
  const auto add = [&](const ExchangeCounts& counts, int64_t factor) {
    for (const auto& [what, bytes] : counts) {
      ExchangedBytes& sum = out[what];
      sum.calls += factor * bytes.calls;
      sum.sent += factor * bytes.sent;
      sum.received += factor * bytes.received;
    }
  };
  add(b, times);
  add(c, -times);
  return out;
}

struct StepExchanges {
  ExchangeCounts update = {};    // of an optimizer update
  ExchangeCounts sampling = {};  // ZeRO-3: of whole values, once before the updates
};

// The exchanges of one rank in a step. micro_batches: of an update. Rounds in which all ranks have a
// micro-batch are alike, and the bytes do not depend on its tokens. So steps of at most two rounds, with the shortest
// micro-batches, tell the bytes of any number.
StepExchanges count_exchanges(const Recipe& recipe, const PlannedStage& planned, const RankLayout& layout, int rank,
                              int64_t micro_batches) {
  DryRank dry(recipe, planned, layout, rank);
  const Objective& objective = *planned.step.objective;
  const int64_t unit = objective.needs().unit == LossUnit::pair ? 2 : 1, ranks = layout.ranks;
  const Sample sample = dry_sample(objective, std::min<int64_t>(planned.length, 8));
  TrainerConfig config = *planned.step.trainer;
  config.micro_batch_tokens = unit * std::ssize(sample.tokens);
  Trainer trainer(dry.context(), dry.model(), config, dry.exchange());
  const auto counts_of = [&](int64_t count) {
    const ExchangeCounts before = dry.counts();
    const std::vector<const Sample*> batch(static_cast<size_t>(unit * count), &sample);
    trainer.step(batch, objective, 0);
    return combine(dry.counts(), 1, {}, before);
  };
  counts_of(1);  // the first step makes a critic
  const int64_t full = micro_batches / ranks, rest = micro_batches % ranks;
  StepExchanges out{.update = counts_of(full > 0 ? ranks : rest)};
  if (full > 0) {
    const ExchangeCounts one = out.update;
    if (full > 1) out.update = combine(out.update, full - 1, counts_of(2 * ranks), one);
    if (rest > 0) out.update = combine(out.update, 1, counts_of(ranks + rest), one);
  }
  const ExchangeCounts before = dry.counts();
  if (planned.step.rollout) dry.model().gather_values();
  out.sampling = combine(dry.counts(), 1, {}, before);
  return out;
}

int64_t scaled(int64_t count, double factor) {
  return static_cast<int64_t>(std::llround(static_cast<double>(count) * factor));
}

}  // namespace

int64_t RankWork::sent() const {
  int64_t out = 0;
  for (const auto& [what, bytes] : exchanged) out += bytes.sent;
  return out;
}

int64_t RankWork::received() const {
  int64_t out = 0;
  for (const auto& [what, bytes] : exchanged) out += bytes.received;
  return out;
}

StepWork plan_work(const Recipe& recipe, const PlannedStage& planned, const RankLayout& layout) {
  const auto ranks = static_cast<size_t>(layout.ranks);
  LongestUpdate update;
  {
    DryRank dry(recipe, planned, layout, 0);
    update = plan_longest(planned, layout, dry.model());
  }
  const std::vector<PlannedMicroBatch>& all = update.plan.micro_batches;
  StepWork out;
  out.ranks.resize(ranks);
  for (size_t first = 0; first < all.size(); first += ranks) {
    int64_t largest = 0;
    for (size_t i = first; i < std::min(first + ranks, all.size()); ++i) {
      ++out.ranks[i - first].micro_batches;
      out.ranks[i - first].tokens += all[i].num_tokens;
      largest = std::max(largest, all[i].num_tokens);
    }
    ++out.rounds;
    out.tokens_in_turn += largest;
    out.largest_micro_batch = std::max(out.largest_micro_batch, largest);
  }
  const auto count = static_cast<int64_t>(all.size());
  const double updates = static_cast<double>(planned.step.updates), factor = update.repeats * updates;
  out.micro_batches = scaled(count, factor);
  out.rounds = scaled(out.rounds, factor);
  out.tokens_in_turn = scaled(out.tokens_in_turn, factor);
  for (size_t r = 0; r < ranks; ++r) {
    RankWork& work = out.ranks[r];
    work.micro_batches = scaled(work.micro_batches, factor);
    work.tokens = scaled(work.tokens, factor);
    if (ranks == 1) continue;
    const StepExchanges once =
        count_exchanges(recipe, planned, layout, static_cast<int>(r), scaled(count, update.repeats));
    work.exchanged = combine(once.sampling, planned.step.updates, once.update, {});
  }
  return out;
}

}  // namespace hone
