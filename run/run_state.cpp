#include "run/run_state.h"

#include <algorithm>
#include <array>
#include <functional>

#include "core/base/log.h"
#include "core/io/checkpoint.h"
#include "core/io/file.h"
#include "run/input_digests.h"
#include "train/stage.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// Today's spelling of a value that may be an old one.
Json current_value(const std::string& key, const Json& value) {
  if (key == "kind" && value == Json("labelled")) return "unpaired_preference";
  if (key == "recompute" && value == Json("block")) return "full";
  return value;
}

// Gives the recipe of an older run.json today's names (docs/dev/glossary.md).
void rename_old_keys(Json& json) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> keys{
      {{"max_sequences", "max_num_seqs"},
       {"max_batch_tokens", "max_num_batched_tokens"},
       {"prefix_caching", "enable_prefix_caching"},
       {"stop_ids", "stop_token_ids"},
       {"mini_batches", "num_mini_batches"},
       {"too_long", "overlong_rows"},
       {"file", "path"},
       {"max_failure_rate", "max_reward_failure_rate"}}};
  if (json.is_array())
    for (Json& item : json.array_ref()) rename_old_keys(item);
  if (!json.is_object()) return;
  JsonObject out;
  for (const auto& [name, value] : json.as_object()) {
    const auto* renamed = std::ranges::find(keys, std::string_view(name), [](const auto& pair) { return pair.first; });
    Json now = current_value(name, value);
    rename_old_keys(now);
    out.emplace_back(renamed == keys.end() ? name : std::string(renamed->second), std::move(now));
  }
  json = std::move(out);
}

// The recipe of an older run.json in today's form.
void update_recipe(Json& recipe) {
  rename_old_keys(recipe);
  if (const Json* device = recipe.find("device"); device && device->is_string()) {
    const Json kind = *device;
    recipe.set("device", JsonObject{{"kind", kind}, {"memory", ""}});
  }
}

void check_results(const Json& results, const std::string& where) {
  for (const Json& result : results.as_array(where)) result.as_object(where + "'s result");
}

void check_stage(const Json& stage, const StageSpec& spec, const std::string& where) {
  const std::string& name = stage.at("name", where).as_string(where + ".name");
  HONE_CHECK(name == spec.name, where, ".name is '", name, "', the recipe's stage in this place is '", spec.name,
             "': the stages of a run that is half done cannot be renamed or reordered");
  for (const char* count : {"steps", "kept_step", "tokens"})
    HONE_CHECK(stage.at(count, where).as_int(concat(where, ".", count)) >= 0, where, ".", count, " is negative");
  if (const Json* planned = stage.find("planned_steps"))  // older runs lack it
    HONE_CHECK(planned->as_int(where + ".planned_steps") >= 0, where, ".planned_steps is negative");
  stage.at("seconds", where).as_double(where + ".seconds");
  check_results(stage.at("eval", where), where + ".eval");
}

// Checks the checkpoint that the next stage starts from: the one of the last completed stage. Earlier ones may have
// been removed.
void check_start(const JsonArray& stages, const fs::path& folder, const Recipe& recipe, const std::string& path) {
  for (size_t i = stages.size(); i-- > 0;) {
    const StageSpec& spec = recipe.stage[i];
    if (!spec.stage->hands_model_on()) continue;
    const int64_t step = stages[i].at("kept_step").as_int();
    const fs::path kept = folder / "checkpoints" / spec.name / concat("step-", step);
    HONE_CHECK(fs::is_directory(kept), path, ": stages[", i, "].kept_step is ", step, ", and there is no checkpoint ",
               kept.string());
    return;
  }
}

using Change = std::function<void(const std::string& key, const std::string& before, const std::string& now)>;

// Calls change() for each key that both have with different values. A key that only one of them has is from another
// version or another kind; then the key of the kind differs, too.
void each_change(const Json& before, const Json& now, const std::string& key, const Change& change) {
  const bool is_whole = key.ends_with("chat_template_kwargs");  // its keys are the user's
  if (before.is_object() && now.is_object() && !is_whole) {
    for (const auto& [name, value] : now.as_object())
      if (const Json* old = before.find(name)) each_change(*old, value, key.empty() ? name : key + "." + name, change);
    return;
  }
  const bool arrays = before.is_array() && now.is_array() && before.as_array().size() == now.as_array().size();
  if (arrays && !now.as_array().empty() && now.as_array().front().is_object()) {
    for (size_t i = 0; i < now.as_array().size(); ++i)
      each_change(before.as_array()[i], now.as_array()[i], concat(key, ".", i), change);
    return;
  }
  const std::string old_text = before.dump(), new_text = now.dump();
  if (old_text != new_text) change(key, old_text, new_text);
}

template <size_t N>
bool is_one_of(const std::string& key, const std::array<std::string_view, N>& keys) {
  return std::any_of(keys.begin(), keys.end(), [&](std::string_view one) {
    return key == one || (key.starts_with(one) && key[one.size()] == '.');
  });
}

// Paths may change: folders move, and another machine has its data elsewhere.
bool is_place(const std::string& key) {
  constexpr std::array<std::string_view, 5> places{"path", "config", "files", "eval_files", "words"};
  return std::find(places.begin(), places.end(), key.substr(key.rfind('.') + 1)) != places.end();
}

// Keys that decide the weights and the random streams of a run.
bool is_fixed_for_run(const std::string& key) {
  constexpr std::array<std::string_view, 7> fixed{
      "seed", "weights_seed", "data_seed", "sampling_seed", "dtype", "model", "parallel.micro_batch_multiple"};
  constexpr std::array<std::string_view, 2> free{"model.save_dtype", "model.lora.merge"};
  return is_one_of(key, fixed) && !is_one_of(key, free) && !is_place(key);
}

// Keys that decide the state in a stage's checkpoint: the data and their order, the shape of a step, the optimizer, the
// critic.
bool is_fixed_for_begun_stage(const std::string& key) {
  constexpr std::array fixed = std::to_array<std::string_view>({"kind",
                                                                "name",
                                                                "objective",
                                                                "generator",
                                                                "split",
                                                                "offset",
                                                                "limit",
                                                                "documents",
                                                                "text_key",
                                                                "prompt",
                                                                "answer",
                                                                "completion",
                                                                "chosen",
                                                                "rejected",
                                                                "label",
                                                                "chat",
                                                                "system",
                                                                "chat_template",
                                                                "chat_template_kwargs",
                                                                "tools",
                                                                "packing",
                                                                "max_length",
                                                                "overlong_rows",
                                                                "batch_size",
                                                                "eval_share",
                                                                "vocab_size",
                                                                "prompts_per_step",
                                                                "num_generations",
                                                                "num_iterations",
                                                                "num_mini_batches",
                                                                "max_staleness",
                                                                "optimizer",
                                                                "optimizer_from",
                                                                "moments",
                                                                "beta1",
                                                                "critic.trunk",
                                                                "sync_ref_model",
                                                                "completion_only_loss",
                                                                "assistant_only_loss",
                                                                "when",
                                                                "source",
                                                                "weight"});
  if (!key.starts_with("source.")) return is_one_of(key, fixed);
  return is_one_of(key.substr(std::min(key.size(), key.find('.', key.find('.') + 1) + 1)), fixed);  // source.0.KEY
}

void refuse_change(const fs::path& folder, const std::string& key, const std::string& before, const std::string& now,
                   const std::string& why) {
  fail((folder / "recipe.toml").string(), ": ", key, " is ", now, ", but the run began with ", before, ": ", why,
       "; set it back, or start a new run");
}

// Files may move; their contents may not change.
void check_same_inputs(const RunState& state, const fs::path& folder, const Recipe& recipe) {
  const Json now = input_digests(recipe);
  for (const auto& [key, digest] : state.inputs.as_object()) {
    const Json* given = now.find(key);
    HONE_CHECK(!given || given->dump() == digest.dump(), (folder / "recipe.toml").string(), ": ", key,
               ": the contents of its files have changed since the run began; restore them, or start a ", "new run");
  }
}

void log_change(const std::string& key, const std::string& before, const std::string& now) {
  const auto shown = [&](const std::string& value) { return key == "parallel.ranks" && value == "0" ? "auto" : value; };
  log::warning("the run continues with ", key, " = ", shown(now), " (it was ", shown(before), ")");
}

// Compares the stages: completed ones, the current one if it has a checkpoint, and later ones.
void check_stages(const RunState& state, const fs::path& folder, const JsonArray& before, const Recipe& recipe) {
  const Json all = recipe.json();
  const JsonArray& now = all.at("stage").as_array();
  const auto done = static_cast<size_t>(state.stages_done);
  for (size_t i = 0; i < before.size(); ++i) {
    const std::string where = concat((folder / "run.json").string(), ": recipe.stage[", i, "]");
    const std::string& name = before[i].at("name", where).as_string(where + ".name");
    const bool is_done = i < done, is_begun = is_done || !checkpoint_steps(folder / "checkpoints" / name).empty();
    if (i >= now.size()) {
      if (is_begun)
        refuse_change(folder, "stage." + name, "this stage", "missing",
                      "a stage that has been worked on stays in the recipe");
      log_change("stage." + name, "there", "no longer there");
      continue;
    }
    each_change(before[i], now[i], "", [&](const std::string& key, const std::string& old, const std::string& given) {
      const std::string whole = concat("stage.", name, ".", key);
      if (is_done && !is_place(key)) refuse_change(folder, whole, old, given, "the stage is done");
      if (is_begun && is_fixed_for_begun_stage(key))
        refuse_change(folder, whole, old, given, "the stage's checkpoints depend on it");
      log_change(whole, old, given);
    });
    if (is_begun && !is_done) check_same_rows(recipe.stage[i], state.inputs, (folder / "recipe.toml").string());
  }
}

// A member of a nested object by its path ("reward.kind"). Null if it does not exist.
const Json* member_at(const Json& json, const std::string& key) {
  const size_t dot = key.find('.');
  const Json* member = json.is_object() ? json.find(key.substr(0, dot)) : nullptr;
  return !member || dot == std::string::npos ? member : member_at(*member, key.substr(dot + 1));
}

// Throws an Error if a kind changed whose state is in a checkpoint. Otherwise returns a hint for each changed kind.
std::string check_kinds(const Json& before, int64_t stages_done, const fs::path& folder, const Config& now) {
  const std::string where = (folder / "run.json").string() + ": recipe";
  std::string hints;
  const JsonArray& stages = before.at("stage", where).as_array(where + ".stage");
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string& name = stages[i].at("name", where).as_string(where + ".stage.name");
    const bool is_done = static_cast<int64_t>(i) < stages_done;
    const bool is_begun = is_done || !checkpoint_steps(folder / "checkpoints" / name).empty();
    for (const std::string key : {"kind", "objective", "optimizer", "reward.kind"}) {
      const Json* old = member_at(stages[i], key);
      const std::optional<std::string> given = now.text_at(concat("stage[", i, "].", key));
      if (!old || !given) continue;
      const std::string whole = concat("stage.", name, ".", key), given_text = current_value(key, *given).dump();
      if (given_text == old->dump()) continue;
      if (is_done) refuse_change(folder, whole, old->dump(), given_text, "the stage is done");
      if (is_begun && is_fixed_for_begun_stage(key))
        refuse_change(folder, whole, old->dump(), given_text, "the stage's checkpoints depend on it");
      hints += concat("; ", whole, " was ", old->dump(), ": remove the keys of that kind from ",
                      (folder / "recipe.toml").string());
    }
  }
  return hints;
}

}  // namespace

bool RunState::has_results() const { return stages_done > 0 || evaluated; }

void RunState::save(const fs::path& folder, const Recipe& now) {
  recipe = now.json();
  const Json all = JsonObject{{"name", now.name},
                              {"stages_done", stages_done},
                              {"num_stages", now.stage.size()},
                              {"evaluated", evaluated},
                              {"initial", initial},
                              {"stages", stages},
                              {"log", log},
                              {"inputs", inputs},
                              {"about", about},
                              {"recipe", recipe}};
  write_file_atomic(folder / "run.json", all.dump(2) + "\n");
}

RunState RunState::load(const fs::path& folder, const Recipe& recipe) {
  const std::string path = (folder / "run.json").string();
  const Json all = parse_json(read_file(path), path);
  RunState out;
  out.stages_done = all.at("stages_done", path).as_int(path + ": stages_done");
  HONE_CHECK(out.stages_done >= 0 && out.stages_done <= static_cast<int64_t>(recipe.stage.size()), path,
             ": stages_done is ", out.stages_done, ", the recipe has ", recipe.stage.size(), " stages");
  out.evaluated = all.at("evaluated", path).as_bool(path + ": evaluated");
  out.initial = all.at("initial", path);
  check_results(out.initial, path + ": initial");
  out.stages = all.at("stages", path);
  const JsonArray& stages = out.stages.as_array(path + ": stages");
  HONE_CHECK(static_cast<int64_t>(stages.size()) == out.stages_done, path, ": stages_done is ", out.stages_done,
             ", stages lists ", stages.size());
  for (size_t i = 0; i < stages.size(); ++i) check_stage(stages[i], recipe.stage[i], concat(path, ": stages[", i, "]"));
  check_start(stages, folder, recipe, path);
  out.log = all.at("log", path);
  for (const char* name : {"metrics_bytes", "samples_bytes"}) {
    const std::string where = concat(path, ": log.", name);
    HONE_CHECK(out.log.at(name, path + ": log").as_int(where) >= 0, where, " is negative");
  }
  if (const Json* inputs = all.find("inputs")) {
    inputs->as_object(path + ": inputs");
    out.inputs = *inputs;
  }
  if (const Json* about = all.find("about")) {  // older runs lack it
    about->as_object(path + ": about");
    out.about = *about;
  }
  if (const Json* made_with = all.find("recipe")) {
    out.recipe = *made_with;
    update_recipe(out.recipe);
  }
  return out;
}

void check_same_recipe(const RunState& state, const fs::path& folder, const Recipe& recipe) {
  if (state.recipe.is_null()) {
    log::warning((folder / "run.json").string(),
                 ": it has no recipe (written by an old version), so changes of the recipe are not checked");
    return;
  }
  const std::string where = (folder / "run.json").string() + ": recipe";
  Json before = state.recipe, now = recipe.json();
  const JsonArray old_stages = before.at("stage", where).as_array(where + ".stage");
  for (Json* one : {&before, &now}) one->set("stage", nullptr);
  each_change(before, now, "", [&](const std::string& key, const std::string& old, const std::string& given) {
    if (state.has_results() && is_fixed_for_run(key)) refuse_change(folder, key, old, given, "results depend on it");
    log_change(key, old, given);
  });
  if (state.has_results()) check_same_inputs(state, folder, recipe);
  check_stages(state, folder, old_stages, recipe);
}

Recipe read_run_recipe(const fs::path& folder, std::span<const std::string> overrides) {
  const std::string path = (folder / "recipe.toml").string(), state_path = (folder / "run.json").string();
  Config config = Config::from_file(path, overrides);
  const Json state = parse_json(read_file(state_path), state_path);
  std::string hints;
  if (const Json* made_with = state.find("recipe")) {
    Json before = *made_with;
    update_recipe(before);
    hints =
        check_kinds(before, state.at("stages_done", state_path).as_int(state_path + ": stages_done"), folder, config);
  }
  try {
    Recipe out = read_recipe(std::move(config));
    out.source = path;
    return out;
  } catch (const Error& error) {  // recipe.toml still has the keys of the former kind
    fail(error.what(), hints);
  }
}

}  // namespace hone
