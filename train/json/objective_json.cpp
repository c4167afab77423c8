#include "train/json/objective_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "train/json/logits_json.h"
#include "train/json/rewards_json.h"
#include "train/objective.h"

namespace hone {
namespace {

constexpr std::array other_fields = {"rewards", "reward_weights", "advantages", "group_size", "config"};

// Makes the objective. Its keys in `config` are read as those of a recipe.
std::unique_ptr<Objective> read_objective(std::string_view name, const Json& input, std::string_view source,
                                          const RunFacts& facts = {}) {
  const std::unique_ptr<ObjectiveSettings> settings = objectives().at(name)();
  std::string toml;
  if (const Json* config = input.find("config"))
    for (const auto& [key, value] : config->as_object("config"))
      if (!value.is_null() && key != "reward_weights") toml += concat(Json(key).dump(), " = ", value.dump(), "\n");
  Config::from_text(toml, concat(source, ": config")).read([&](Fields& f) { settings->fields(f); });
  settings->validate(facts);
  return settings->make(facts);
}

float number(const Json& value, std::string_view what) {
  if (value.is_null()) return std::numeric_limits<float>::quiet_NaN();  // how the logp of a first token is written
  return value.is_bool() ? static_cast<float>(value.as_bool()) : static_cast<float>(value.as_double(what));
}

// Reads the sequences of a file into columns, all sequences end to end.
class SequenceReader {
 public:
  SequenceReader(const Json& input, std::string_view source) : input_(input), source_(source) {
    for (const auto& [key, value] : input.as_object(source_))
      HONE_CHECK(find_column(key) || std::ranges::find(other_fields, key) != other_fields.end(), source_,
                 ": unknown field '", key, "'");
    for (const Json& sequence : input.at("logp", source_).as_array("logp"))
      offsets_.push_back(offsets_.back() + static_cast<int32_t>(sequence.as_array("logp").size()));
  }

  size_t num_sequences() const { return offsets_.size() - 1; }
  size_t num_tokens() const { return static_cast<size_t>(offsets_.back()); }
  size_t length(size_t s) const { return static_cast<size_t>(offsets_[s + 1] - offsets_[s]); }
  std::span<const int32_t> offsets() const { return offsets_; }

  // The field; null if the file does not have it.
  const Json* field(const std::string& name) const {
    const Json* value = input_.find(name);
    return value && !value->is_null() ? value : nullptr;
  }
  // Reads a column from the field `name`. Older files nest per-sequence columns; their value is then that of the tokens
  // under `mask`.
  std::vector<float> read(Column column, const std::string& name, const Json& value,
                          std::span<const float> mask) const {
    std::vector<float> out;
    const JsonArray& sequences = of_sequences(name, value);
    for (size_t s = 0; s < sequences.size(); ++s) {
      const std::string what = concat(name, "[", s, "]");
      if (column.info().per_sequence && column.info().width == 1 && sequences[s].is_array())
        out.push_back(shared_entry(sequences[s], what, of(mask, s)));
      else if (column.info().per_sequence)
        read_entry(column, sequences[s], what, out);
      else
        read_tokens(column, sequences[s], what, length(s), out);
    }
    return out;
  }

  Json nest(std::span<const float> values) const {
    JsonArray out;
    for (size_t s = 0; s < num_sequences(); ++s) out.push_back(Json::array(of(values, s)));
    return out;
  }
  // Entries of one sequence.
  std::span<const float> of(std::span<const float> values, size_t s) const {
    return values.subspan(static_cast<size_t>(offsets_[s]), length(s));
  }
  std::span<const float> of(Column column, std::span<const float> values, size_t s) const {
    const size_t begin = column.size(s, static_cast<size_t>(offsets_[s]));
    return values.subspan(begin, column.size(1, length(s)));
  }

 private:
  const JsonArray& of_sequences(const std::string& name, const Json& value) const {
    const JsonArray& sequences = value.as_array(name);
    HONE_CHECK(sequences.size() == num_sequences(), source_, ": ", name, " has ", sequences.size(),
               " sequences, logp has ", num_sequences());
    return sequences;
  }
  // Reads one entry: a number, or a list of column.info().width numbers.
  void read_entry(Column column, const Json& value, const std::string& what, std::vector<float>& out) const {
    if (column.info().width == 1) {
      out.push_back(number(value, what));
      return;
    }
    const JsonArray& numbers = value.as_array(what);
    HONE_CHECK(std::ssize(numbers) == column.info().width, source_, ": ", what, " has ", numbers.size(),
               " numbers, an entry of ", column.name(), " has ", column.info().width);
    for (const Json& one : numbers) out.push_back(number(one, what));
  }
  void read_tokens(Column column, const Json& value, const std::string& what, size_t count,
                   std::vector<float>& out) const {
    if (!value.is_array() && column.info().width == 1) {
      out.insert(out.end(), count, number(value, what));
      return;
    }
    const JsonArray& tokens = value.as_array(what);
    HONE_CHECK(tokens.size() == count, source_, ": ", what, " has ", tokens.size(), " entries, its sequence has ",
               count, " tokens");
    for (size_t t = 0; t < tokens.size(); ++t)
      read_entry(column, tokens[t], tokens[t].is_number() ? what : concat(what, "[", t, "]"), out);
  }
  // The number that all masked tokens of a sequence have; 0 if none is masked.
  float shared_entry(const Json& value, const std::string& what, std::span<const float> mask) const {
    const JsonArray& tokens = value.as_array(what);
    HONE_CHECK(tokens.size() == mask.size(), source_, ": ", what, " has ", tokens.size(), " entries, its sequence has ",
               mask.size(), " tokens");
    const auto first = static_cast<size_t>(std::ranges::find_if(mask, [](float m) { return m != 0; }) - mask.begin());
    if (first == mask.size()) return 0;
    const float out = number(tokens[first], what);
    for (size_t t = first; t < tokens.size(); ++t)
      HONE_CHECK(mask[t] == 0 || number(tokens[t], what) == out, source_, ": ", what,
                 " differs between tokens; it is one number for the sequence");
    return out;
  }

  const Json& input_;
  std::string source_;
  std::vector<int32_t> offsets_{0};
};

// Entries that are trained on must be numbers.
void check_numbers(const SequenceReader& reader, const Columns& table, std::string_view source) {
  const std::span<const float> mask = table.find(columns::mask);
  table.for_each([&](Column column, std::span<const float> values) {
    const auto width = static_cast<size_t>(column.info().width);
    for (size_t s = 0; s < reader.num_sequences(); ++s) {
      const std::span<const float> own = reader.of(column, values, s), trained = reader.of(mask, s);
      for (size_t i = 0; i < own.size(); ++i)
        HONE_CHECK(std::isfinite(own[i]) || (!column.info().per_sequence && trained[i / width] == 0), source, ": ",
                   column.name(), "[", s, "]", column.info().per_sequence ? "" : concat("[", i / width, "]"),
                   " is not a number, but its mask is not 0");
    }
  });
}

void check_mask(const SequenceReader& reader, const Columns& table, std::string_view source) {
  for (size_t s = 0; s < reader.num_sequences(); ++s) {
    const std::span<const float> mask = reader.of(table.find(columns::mask), s);
    for (size_t t = 0; t < mask.size(); ++t)
      HONE_CHECK(mask[t] == 0 || mask[t] == 1, source, ": mask[", s, "][", t, "] is ", mask[t], "; it must be 0 or 1");
  }
}

// Reads the columns that the objective may use. Older files have some of them under their aliases.
Columns read_columns(const SequenceReader& reader, const Needs& needs, std::string_view source) {
  Columns out;
  const auto read = [&](Column column, const std::string& field) {
    const Json* value = reader.field(field);
    if (value && !out.has(column)) out.set(column, reader.read(column, field, *value, out.find(columns::mask)));
  };
  read(columns::mask, columns::mask.name());
  if (!out.has(columns::mask)) out.assign(columns::mask, reader.num_tokens(), 1);
  check_mask(reader, out, source);
  for (const Column column : all_columns()) read(column, column.name());
  for (const std::vector<Column>* named : {&needs.columns, &needs.optional})
    for (const Column column : *named)
      if (!column.info().alias.empty()) read(column, column.info().alias);
  check_numbers(reader, out, source);
  const auto copy = [&](Column from, Column to) {
    const std::span<const float> values = out.find(from);
    out.set(to, std::vector<float>(values.begin(), values.end()));
  };
  if (!out.has(columns::old_logp) && !out.has(columns::behavior_logp)) copy(columns::logp, columns::old_logp);
  if (!out.has(columns::old_value)) copy(columns::value, columns::old_value);
  return out;
}

// What the objective does before the epochs, on groups of the file's sequences: computes advantages from rewards, or
// only selects tokens. Copies their columns to `table`.
void prepare(Objective& objective, const SequenceReader& reader, const std::optional<GivenRewards>& rewards,
             size_t group_size, Columns& table, MetricSums& metrics) {
  std::vector<Group> groups(reader.num_sequences() / group_size);
  for (size_t s = 0; s < reader.num_sequences(); ++s) {
    Sample& sample = groups[s / group_size].samples.emplace_back();
    sample.tokens.resize(reader.length(s));
    table.for_each([&](Column column, std::span<const float> values) {
      sample.columns.append(column, reader.of(column, values, s));
    });
    const std::span<const float> mask = sample.columns.find(columns::mask);
    sample.completion.ids.resize(static_cast<size_t>(std::ranges::count_if(mask, [](float m) { return m != 0; })));
    if (rewards) rewards->write(s, sample);
  }
  if (rewards)
    objective.compute_advantages(groups, metrics);
  else
    objective.select_tokens(groups, metrics);
  std::vector<const Sample*> samples;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) samples.push_back(&sample);
  join_columns(samples, table);
}

// The advantage column, or the objective's column with the same alias; null if the table has neither.
Json advantages_json(const SequenceReader& reader, const Columns& table, const Needs& needs) {
  std::vector<Column> candidates = {columns::advantage};
  candidates.insert(candidates.end(), needs.columns.begin(), needs.columns.end());
  for (const Column column : candidates) {
    if (!table.has(column) || column.info().alias != columns::advantage.info().alias) continue;
    if (column.info().per_sequence) return Json::array(table[column]);
    JsonArray out;  // one number for a sequence whose masked tokens share it, else a list
    for (size_t s = 0; s < reader.num_sequences(); ++s) {
      const std::span<const float> advantage = reader.of(table[column], s), mask = reader.of(table[columns::mask], s);
      const auto first = static_cast<size_t>(std::ranges::find_if(mask, [](float m) { return m != 0; }) - mask.begin());
      bool shared = true;
      for (size_t t = first; t < mask.size(); ++t)
        shared = shared && (mask[t] == 0 || advantage[t] == advantage[first]);
      if (!shared)
        out.push_back(Json::array(advantage));
      else
        out.push_back(first < mask.size() ? Json(advantage[first]) : Json(0.0));
    }
    return out;
  }
  return nullptr;
}

// Errors may lack the file.
Json evaluate(std::string_view name, const Json& input, std::string_view source) {
  if (has_logits(input)) {
    const std::unique_ptr<Objective> objective = read_objective(name, input, source);
    const auto* taught = dynamic_cast<const TeacherObjective*>(objective.get());
    HONE_CHECK(taught, source, ": ", name, " reads logp, not logits; distill reads logits");
    return evaluate_on_logits(*taught, input, source);
  }
  const SequenceReader reader(input, source);
  std::optional<GivenRewards> rewards;
  if (const Json* given = input.find("rewards"); given && !given->is_null())
    rewards.emplace(input, reader.num_sequences(), source);
  RunFacts facts;
  if (rewards) facts.reward_weights[""] = rewards->weights();
  const std::unique_ptr<Objective> objective = read_objective(name, input, source, facts);
  const Needs needs = objective->needs();
  const Json* group_size = input.find("group_size");
  HONE_CHECK(!rewards || (!input.find("advantages") && !input.find(columns::advantage.name())), source,
             ": has both rewards and advantages; give one");
  Columns table = read_columns(reader, needs, source);
  MetricSums metrics;
  const auto total = static_cast<int64_t>(reader.num_sequences());
  const int64_t given = group_size ? group_size->as_int("group_size") : std::max<int64_t>(total, 1);
  HONE_CHECK(given >= 1, source, ": group_size is ", given, "; it must be 1 or more");
  const int64_t size = rewards ? given : std::max<int64_t>(total, 1);
  HONE_CHECK(total % size == 0, source, ": group_size ", size, " does not divide ", total, " sequences");
  prepare(*objective, reader, rewards, static_cast<size_t>(size), table, metrics);

  double count = 0;
  for (size_t s = 0; s < reader.num_sequences(); ++s)
    count += count_of(needs.unit, reader.of(table.find(columns::mask), s));
  TokenBatch batch{.offsets = reader.offsets(), .scale = scale_of(count)};
  table.for_each([&](Column column, std::span<const float> values) { batch.columns.set(column, values); });
  check_batch(needs, batch);
  std::vector<float> grad(reader.num_tokens()), grad_entropy(batch.find(columns::entropy).size()),
      grad_value(batch.find(columns::value).size());
  const double loss = objective->loss(batch, {.logp = grad, .entropy = grad_entropy, .value = grad_value}, metrics);

  Json out = JsonObject{};
  out.set("loss", loss);
  out.set("grad", reader.nest(grad));
  if (!grad_entropy.empty()) out.set("grad_entropy", reader.nest(grad_entropy));
  if (!grad_value.empty()) out.set("grad_value", reader.nest(grad_value));
  out.set("advantages", advantages_json(reader, table, needs));
  Json means = JsonObject{};
  for (const auto& [metric, value] : metrics.means()) means.set(metric, value);
  out.set("metrics", std::move(means));
  return out;
}

}  // namespace

Json evaluate_objective(std::string_view name, const Json& input, std::string_view source) {
  try {
    return evaluate(name, input, source);
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (text.starts_with(source)) throw;
    fail(source, ": ", text);
  }
}

}  // namespace hone
