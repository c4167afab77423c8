#include "train/objective.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace hone {

std::string describe(TrainingData data) {
  switch (data) {
    case TrainingData::rewarded:
      return "completions that the stage itself samples and rewards (kind = \"rl\")";
    case TrainingData::completions:
      return "single completions (kind = \"sft\")";
    case TrainingData::unpaired:
      return "labeled completions (kind = \"unpaired_preference\")";
    case TrainingData::pairs:
      return "pairs of a chosen and a rejected completion (kind = \"preference\"; hone collect makes them; "
             "kind = \"online_dpo\" samples them)";
    case TrainingData::scored_pairs:
      return "the scores of a pair (kind = \"reward_model\")";
  }
  fail("objective: TrainingData ", static_cast<int>(data), " is unknown");
}

bool Needs::has(Column column) const { return std::ranges::find(columns, column) != columns.end(); }

double count_of(LossUnit unit, std::span<const float> mask) {
  if (unit == LossUnit::sequence) return 1;
  if (unit == LossUnit::pair) return 0.5;
  double sum = 0;
  for (const float m : mask) sum += m;
  return sum;
}

double scale_of(double count) { return count > 0 ? 1 / count : 1; }

void check_batch(const Needs& needs, const TokenBatch& batch) {
  HONE_CHECK(!batch.offsets.empty() && batch.offsets.front() == 0, "objective: offsets must start with 0");
  for (size_t s = 0; s < batch.num_sequences(); ++s)
    HONE_CHECK(batch.offsets[s] <= batch.offsets[s + 1], "objective: offsets fall at sequence ", s);
  const size_t tokens = batch.num_tokens();
  batch.columns.for_each([&](Column column, std::span<const float> values) {
    const size_t expected = column.size(batch.num_sequences(), tokens);
    HONE_CHECK(values.size() == expected, "objective: ", column.name(), " has ", values.size(), " entries for ", tokens,
               " tokens of ", batch.num_sequences(), " sequences; it needs ", expected);
  });
  const auto require = [&](Column column) {
    const ColumnInfo& info = column.info();
    HONE_CHECK(tokens == 0 || batch.has(column), "objective: needs ", column.name(), " (", info.doc,
               info.alias.empty() ? "" : concat("; also read from the field ", info.alias),
               "), which this run does not have");
  };
  require(columns::logp);
  require(columns::mask);
  if (needs.critic) require(columns::value);
  for (const Column column : needs.columns) {
    const bool old_stands_in =
        column == columns::behavior_logp && !needs.has(columns::old_logp) && batch.has(columns::old_logp);
    if (!old_stands_in) require(column);
  }
  HONE_CHECK(needs.unit != LossUnit::pair || batch.num_sequences() % 2 == 0, "objective: ", batch.num_sequences(),
             " sequences do not make pairs");
}

void MetricSums::merge(const MetricSums& other) {
  for (const auto& [name, sum] : other.sums_) add(name, sum.first, sum.second);
  for (const auto& [name, value] : other.extremes_) name.ends_with("min") ? minimum(name, value) : maximum(name, value);
}

namespace {

// Appends and reads numbers in this machine's byte order, and names with their length.
void put_number(std::string& out, double value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }
void put_name(std::string& out, const std::string& name) {
  put_number(out, static_cast<double>(name.size()));
  out += name;
}

struct NumberReader {
  std::string_view bytes;
  std::string_view take(size_t count) {
    HONE_CHECK(count <= bytes.size(), "metric sums: ", bytes.size(), " bytes are left of ", count);
    const std::string_view out = bytes.substr(0, count);
    bytes.remove_prefix(count);
    return out;
  }
  double number() {
    double out = 0;
    std::memcpy(&out, take(sizeof out).data(), sizeof out);
    return out;
  }
  size_t count() {
    const double value = number();
    HONE_CHECK(value >= 0 && value <= static_cast<double>(bytes.size()), "metric sums: a count of ", value);
    return static_cast<size_t>(value);
  }
  std::string name() { return std::string(take(count())); }
};

}  // namespace

std::string MetricSums::to_bytes() const {
  std::string out;
  put_number(out, static_cast<double>(sums_.size()));
  for (const auto& [name, sum] : sums_) {
    put_name(out, name);
    put_number(out, sum.first);
    put_number(out, sum.second);
  }
  put_number(out, static_cast<double>(extremes_.size()));
  for (const auto& [name, value] : extremes_) {
    put_name(out, name);
    put_number(out, value);
  }
  return out;
}

MetricSums MetricSums::from_bytes(std::string_view bytes) {
  NumberReader in{bytes};
  MetricSums out;
  for (size_t left = in.count(); left > 0; --left) {
    const std::string name = in.name();
    const double sum = in.number();
    out.sums_[name] = {sum, in.number()};
  }
  for (size_t left = in.count(); left > 0; --left) {
    const std::string name = in.name();
    out.extremes_[name] = in.number();
  }
  HONE_CHECK(in.bytes.empty(), "metric sums: ", in.bytes.size(), " bytes too many");
  return out;
}

Metrics MetricSums::means() const {
  Metrics out;
  for (const auto& [name, sum] : sums_)
    if (sum.second != 0) out[name] = sum.first / sum.second;
  for (const auto& [name, value] : extremes_) out[name] = value;
  return out;
}

Metrics fold_metrics(std::span<const Metrics> updates) {
  MetricSums sums;
  for (const Metrics& update : updates)
    for (const auto& [name, value] : update) {
      if (name.ends_with("min"))
        sums.minimum(name, value);
      else if (name.ends_with("max"))
        sums.maximum(name, value);
      else
        sums.add(name, value, 1);
    }
  return sums.means();
}

void ObjectiveSettings::validate(const RunFacts& facts) const {
  if (!compares_group() || facts.group_size == 0) return;
  HONE_CHECK(facts.group_size > 1,
             "the objective compares the completions of a prompt with each other: with num_generations = 1 it has no "
             "gradient; set 2 or more");
  HONE_CHECK(
      facts.temperature > 0,
      "the objective compares the completions of a prompt with each other, and greedy sampling (temperature = 0, "
      "or top_k = 1) generates equal completions: it has no gradient; set a temperature above 0 and another top_k");
}

std::unique_ptr<Objective> make_objective(std::string_view kind, const RunFacts& facts) {
  return objectives().at(kind)()->make(facts);
}

Registry<ObjectiveFactory>& objectives() {
  static Registry<ObjectiveFactory> registry("objective");
  return registry;
}

std::vector<std::string> objectives_for(TrainingData data) {
  std::vector<std::string> out;
  std::ranges::copy_if(objectives().names(), std::back_inserter(out),
                       [&](const std::string& name) { return make_objective(name)->needs().data == data; });
  return out;
}

void require_data(Fields& f, const std::string& kind, const ObjectiveSettings& settings, TrainingData data) {
  const TrainingData needed = settings.make({})->needs().data;
  f.require("objective", needed == data,
            concat(kind, " learns from ", describe(needed), ", and this stage trains on ", describe(data),
                   ": its objectives are ", join(objectives_for(data))));
}

}  // namespace hone
