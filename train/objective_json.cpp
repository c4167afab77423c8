#include "train/objective_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "train/objective.h"

namespace hone {
namespace {

constexpr std::array known_fields = {"logp",       "mask",       "behavior_logp", "old_logp", "reference_logp",
                                     "entropy",    "value",      "old_value",     "returns",  "rewards",
                                     "advantages", "group_size", "config"};

// The objective with its keys read as a recipe's would be.
std::unique_ptr<Objective> make_objective(std::string_view name, const Json& input, std::string_view source) {
  std::unique_ptr<Objective> objective = objectives().at(name)();
  std::string toml;
  if (const Json* config = input.find("config"))
    for (const auto& [key, value] : config->as_object("config"))
      if (!value.is_null()) toml += concat(Json(key).dump(), " = ", value.dump(), "\n");
  Config::from_text(toml, concat(source, ": config")).read([&](Fields& f) { objective->fields(f); });
  objective->prepare();
  return objective;
}

// Sequences of a file as the learner's arrays.
class Columns {
 public:
  Columns(const Json& input, std::string_view source) : input_(input), source_(source) {
    for (const auto& [key, value] : input.as_object(source_))
      HONE_CHECK(std::find(known_fields.begin(), known_fields.end(), key) != known_fields.end(), source_,
                 ": unknown field '", key, "'");
    for (const Json& sequence : input.at("logp", source_).as_array("logp"))
      offsets_.push_back(offsets_.back() + static_cast<int32_t>(sequence.as_array("logp").size()));
  }

  size_t num_sequences() const { return offsets_.size() - 1; }
  size_t length(size_t s) const { return static_cast<size_t>(offsets_[s + 1] - offsets_[s]); }
  std::span<const int32_t> offsets() const { return offsets_; }

  // A nested field as [T]; empty when the file does not have it. null (as a first token's logp is written) becomes NaN.
  std::vector<float> nested(const char* field) const {
    std::vector<float> out;
    const Json* value = input_.find(field);
    if (!value || value->is_null()) return out;
    const JsonArray& sequences = of_sequences(field, *value);
    for (size_t s = 0; s < sequences.size(); ++s) {
      const std::string what = concat(field, "[", s, "]");
      const JsonArray& tokens = sequences[s].as_array(what);
      HONE_CHECK(tokens.size() == length(s), source_, ": ", what, " has ", tokens.size(), " entries, logp[", s,
                 "] has ", length(s));
      for (const Json& token : tokens) out.push_back(number(token, what));
    }
    return out;
  }

  // Entries that are trained on must be numbers.
  void check_masked(const char* field, std::span<const float> values, std::span<const float> mask) const {
    for (size_t s = 0; s < num_sequences() && !values.empty(); ++s)
      for (size_t t = 0; t < length(s); ++t)
        HONE_CHECK(of(mask, s)[t] == 0 || std::isfinite(of(values, s)[t]), source_, ": ", field, "[", s, "][", t,
                   "] is not a number, but its mask is not 0");
  }

  // One number a sequence.
  std::vector<double> per_sequence(const char* field, const Json& value) const {
    std::vector<double> out;
    for (const Json& item : of_sequences(field, value)) out.push_back(item.as_double(field));
    return out;
  }

  Json nest(std::span<const float> column) const {
    JsonArray out;
    for (size_t s = 0; s < num_sequences(); ++s) out.push_back(Json::array(of(column, s)));
    return out;
  }
  template <class T>
  std::span<T> of(std::span<T> column, size_t s) const {
    return column.subspan(static_cast<size_t>(offsets_[s]), length(s));
  }

 private:
  static float number(const Json& token, std::string_view what) {
    if (token.is_null()) return std::numeric_limits<float>::quiet_NaN();
    return token.is_bool() ? static_cast<float>(token.as_bool()) : static_cast<float>(token.as_double(what));
  }
  const JsonArray& of_sequences(const char* field, const Json& value) const {
    const JsonArray& sequences = value.as_array(field);
    HONE_CHECK(sequences.size() == num_sequences(), source_, ": ", field, " has ", sequences.size(),
               " sequences, logp has ", num_sequences());
    return sequences;
  }

  const Json& input_;
  std::string source_;
  std::vector<int32_t> offsets_{0};
};

// What a file may say of its tokens, [T] each.
struct TokenColumns {
  std::vector<float> logp, mask, behavior_logp, old_logp, reference_logp, entropy, value, old_value, returns, advantage;
};

TokenColumns read_columns(const Columns& columns) {
  TokenColumns out{.logp = columns.nested("logp"),
                   .mask = columns.nested("mask"),
                   .behavior_logp = columns.nested("behavior_logp"),
                   .old_logp = columns.nested("old_logp"),
                   .reference_logp = columns.nested("reference_logp"),
                   .entropy = columns.nested("entropy"),
                   .value = columns.nested("value"),
                   .old_value = columns.nested("old_value"),
                   .returns = columns.nested("returns"),
                   .advantage = {}};
  if (out.mask.empty()) out.mask.assign(out.logp.size(), 1);
  const std::pair<const char*, const std::vector<float>*> to_check[] = {
      {"logp", &out.logp},           {"behavior_logp", &out.behavior_logp},
      {"old_logp", &out.old_logp},   {"reference_logp", &out.reference_logp},
      {"entropy", &out.entropy},     {"value", &out.value},
      {"old_value", &out.old_value}, {"returns", &out.returns}};
  for (const auto& [field, values] : to_check) columns.check_masked(field, *values, out.mask);
  if (out.old_logp.empty() && out.behavior_logp.empty()) out.old_logp = out.logp;
  if (out.old_value.empty()) out.old_value = out.value;
  return out;
}

// Runs the objective's credit() over groups of the file's sequences.
void credit(Objective& objective, const Columns& columns, std::span<const double> rewards, size_t group_size,
            TokenColumns& tokens, MetricSums& metrics) {
  const auto part = [&](const std::vector<float>& column, size_t s) {
    if (column.empty()) return std::vector<float>();
    const std::span<const float> values = columns.of(std::span<const float>(column), s);
    return std::vector<float>(values.begin(), values.end());
  };
  std::vector<Group> groups(columns.num_sequences() / group_size);
  for (size_t s = 0; s < columns.num_sequences(); ++s) {
    Sample& sample = groups[s / group_size].samples.emplace_back();
    sample.tokens.resize(columns.length(s));
    sample.mask = part(tokens.mask, s);
    sample.behavior_logp = part(tokens.behavior_logp, s);
    sample.old_logp = part(tokens.old_logp, s);
    sample.reference_logp = part(tokens.reference_logp, s);
    sample.value = part(tokens.old_value, s);
    sample.reward = rewards[s];
  }
  objective.compute_advantages(groups, metrics);
  std::vector<float> returns;
  tokens.mask.clear();  // credit may have taken samples out
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) {
      tokens.mask.insert(tokens.mask.end(), sample.mask.begin(), sample.mask.end());
      tokens.advantage.insert(tokens.advantage.end(), sample.advantage.begin(), sample.advantage.end());
      returns.insert(returns.end(), sample.returns.begin(), sample.returns.end());
    }
  if (!returns.empty()) tokens.returns = std::move(returns);
}

void read_advantages(const Columns& columns, const Json& given, TokenColumns& tokens) {
  if (!given.as_array("advantages").empty() && given.as_array("advantages").front().is_array()) {
    tokens.advantage = columns.nested("advantages");
    return;
  }
  const std::vector<double> advantages = columns.per_sequence("advantages", given);
  for (size_t s = 0; s < advantages.size(); ++s)
    tokens.advantage.insert(tokens.advantage.end(), columns.length(s), static_cast<float>(advantages[s]));
}

// One number for a sequence whose masked tokens share it, else a list.
Json advantages_json(const Columns& columns, const TokenColumns& tokens) {
  if (tokens.advantage.empty()) return nullptr;
  JsonArray out;
  for (size_t s = 0; s < columns.num_sequences(); ++s) {
    const auto advantage = columns.of(std::span<const float>(tokens.advantage), s),
               mask = columns.of(std::span<const float>(tokens.mask), s);
    const size_t first =
        static_cast<size_t>(std::find_if(mask.begin(), mask.end(), [](float m) { return m != 0; }) - mask.begin());
    bool shared = true;
    for (size_t t = first; t < mask.size(); ++t) shared = shared && (mask[t] == 0 || advantage[t] == advantage[first]);
    if (!shared)
      out.push_back(Json::array(advantage));
    else
      out.push_back(first < mask.size() ? Json(advantage[first]) : Json(0.0));
  }
  return out;
}

}  // namespace

Json evaluate_objective(std::string_view name, const Json& input, std::string_view source) {
  const Columns columns(input, source);
  const std::unique_ptr<Objective> objective = make_objective(name, input, source);
  TokenColumns tokens = read_columns(columns);
  MetricSums metrics;
  const Json *rewards = input.find("rewards"), *advantages = input.find("advantages"),
             *group_size = input.find("group_size");
  if (rewards) {
    HONE_CHECK(!advantages, source, ": has both rewards and advantages; give one");
    const auto total = static_cast<int64_t>(columns.num_sequences());
    const int64_t size = group_size ? group_size->as_int("group_size") : std::max<int64_t>(total, 1);
    HONE_CHECK(size > 0 && total % size == 0, source, ": group_size ", size, " does not divide ", total, " sequences");
    credit(*objective, columns, columns.per_sequence("rewards", *rewards), static_cast<size_t>(size), tokens, metrics);
  } else if (advantages) {
    read_advantages(columns, *advantages, tokens);
  }

  const Needs needs = objective->needs();
  double count = 0;
  for (size_t s = 0; s < columns.num_sequences(); ++s)
    count += count_of(needs.per, columns.of(std::span<const float>(tokens.mask), s));
  const TokenBatch batch{.offsets = columns.offsets(),
                         .logp = tokens.logp,
                         .old_logp = tokens.old_logp,
                         .behavior_logp = tokens.behavior_logp,
                         .reference_logp = tokens.reference_logp,
                         .advantage = tokens.advantage,
                         .mask = tokens.mask,
                         .entropy = tokens.entropy,
                         .value = tokens.value,
                         .old_value = tokens.old_value,
                         .returns = tokens.returns,
                         .scale = scale_of(count)};
  check_batch(needs, batch);
  std::vector<float> grad(tokens.logp.size()), grad_entropy(tokens.entropy.size()), grad_value(tokens.value.size());
  const double loss = objective->loss(batch, {.logp = grad, .entropy = grad_entropy, .value = grad_value}, metrics);

  Json out = JsonObject{};
  out.set("loss", loss);
  out.set("grad", columns.nest(grad));
  if (!grad_entropy.empty()) out.set("grad_entropy", columns.nest(grad_entropy));
  if (!grad_value.empty()) out.set("grad_value", columns.nest(grad_value));
  out.set("advantages", advantages_json(columns, tokens));
  Json means = JsonObject{};
  for (const auto& [metric, value] : metrics.means()) means.set(metric, value);
  out.set("metrics", std::move(means));
  return out;
}

}  // namespace hone
