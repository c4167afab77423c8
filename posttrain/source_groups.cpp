#include "posttrain/source_groups.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "core/base/rng.h"
#include "data/source_column.h"

namespace hone {

std::vector<Group> hold_out(std::vector<Group>& groups, double share, uint64_t seed) {
  const auto count = static_cast<int64_t>(groups.size());
  HONE_CHECK(count > 1, "data: one row cannot be both trained on and held out: give 2 rows or more");
  const int64_t taken = std::clamp<int64_t>(std::llround(share * static_cast<double>(count)), 1, count - 1);
  const Permutation order(static_cast<uint64_t>(count), seed ^ stream_of("hold out"), 0);
  std::vector<bool> held(groups.size());
  for (int64_t i = 0; i < taken; ++i) held[order(static_cast<uint64_t>(i))] = true;
  std::vector<Group> kept, out;
  for (size_t i = 0; i < groups.size(); ++i) (held[i] ? out : kept).push_back(std::move(groups[i]));
  groups = std::move(kept);
  return out;
}

namespace {

// Moves training groups whose row another source holds out to the held-out ones.
void hold_out_everywhere(std::vector<Group>& train, std::vector<Group>& held, const std::set<std::string>& rows) {
  std::vector<Group> kept;
  for (Group& group : train) (rows.contains(group.task.id) ? held : kept).push_back(std::move(group));
  train = std::move(kept);
}

void mark(std::vector<Group>& groups, const std::string& name, size_t index, bool several) {
  for (Group& group : groups) {
    group.task.source = name;
    if (several)
      for (Sample& sample : group.samples) sample.columns.set(columns::source, {static_cast<float>(index)});
  }
}

}  // namespace

SourceGroups load_sources(std::span<const GroupSource> sources, double share, uint64_t seed) {
  const bool several = sources.size() > 1;
  std::vector<std::vector<Group>> train(sources.size()), held(sources.size());
  std::set<std::string> held_rows;
  for (size_t s = 0; s < sources.size(); ++s) {
    const std::string& name = sources[s].name;
    train[s] = sources[s].load(sources[s].rows);
    HONE_CHECK(!several || share == 0 || train[s].size() > 1, "source ", name,
               " has one row, which cannot be both trained on and held out: give 2 rows or more");
    if (share > 0) held[s] = hold_out(train[s], share, several ? seed ^ stream_of(name.c_str()) : seed);
    for (const Group& group : held[s]) held_rows.insert(group.task.id);
  }
  SourceGroups out;
  for (size_t s = 0; s < sources.size(); ++s) {
    if (several && share > 0) hold_out_everywhere(train[s], held[s], held_rows);
    HONE_CHECK(!several || !train[s].empty(), "source ", sources[s].name,
               ": other sources hold all of its rows out, since they read the same ones: reduce eval_share");
    mark(train[s], sources[s].name, s, several);
    mark(held[s], sources[s].name, s, several);
    out.parts.push_back({.name = sources[s].name, .count = std::ssize(train[s]), .weight = sources[s].weight});
    std::ranges::move(train[s], std::back_inserter(out.train));
    std::ranges::move(held[s], std::back_inserter(out.held));
  }
  return out;
}

void name_sources(Metrics& metrics, std::span<const MixturePart> parts) {
  Metrics named;
  for (const char* metric :
       {"loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "accuracy", "margin"})
    for (size_t s = 0; s < parts.size(); ++s)
      if (const auto entry = metrics.extract(source_metric(metric, static_cast<float>(s))); !entry.empty())
        named[concat(metric, "/", parts[s].name)] = entry.mapped();
  metrics.merge(named);
}

}  // namespace hone
