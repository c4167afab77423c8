#include "run/plan/memory_fit.h"

#include <algorithm>
#include <optional>

#include "core/base/format.h"
#include "core/config/byte_size.h"
#include "run/plan/stage_memory.h"
#include "run/recipe/start.h"
#include "train/trainer.h"

namespace hone {
namespace {

// A value for a key that makes a stage smaller.
struct Change {
  std::string key;     // as an override: "stage.0.recompute"
  std::string shown;   // for messages, also an override: "stage.grpo.recompute"
  std::string places;  // the key in the document, and its old name after a space
  std::string before, after;
  std::string cost;
  std::string override_text() const { return key + "=" + after; }
};

// The next number of bytes that byte_size_text() shows without rounding.
int64_t rounded_up(int64_t bytes) {
  const int64_t step = bytes >= 1'000'000'000 ? 10'000'000 : bytes >= 1'000'000 ? 100'000 : bytes >= 10'000 ? 100 : 1;
  return (bytes + step - 1) / step * step;
}

// A stage as overrides name it: by its name if that leads to this stage, else by its index.
std::string stage_prefix(const Recipe& recipe, size_t index) {
  const std::string by_name = concat("stage.", recipe.stage[index].name);
  const std::vector<std::string> probe{concat(by_name, ".probe=0")};
  try {
    if (recipe.document->with(probe).has(concat("stage[", index, "].probe"))) return by_name;
  } catch (const Error&) {  // the name is hone's own, and no key of the document has it
  }
  return concat("stage.", index);
}

// The keys of one stage, and of the engine that it uses.
class StageChanges {
 public:
  StageChanges(const Recipe& recipe, const std::vector<PlannedStage>& all, const PlannedStage& planned)
      : recipe_(recipe),
        planned_(planned),
        synchronous_(std::ranges::all_of(all, [](const auto& one) { return one.step.max_versions_in_flight == 0; })),
        trainer_(*planned.step.trainer),
        prefix_(stage_prefix(recipe, planned.index)) {
    shares_device_ = planned.step.rollout && recipe.rollout.shares_learner_device();
    add_all();
  }
  // In the order in which they are tried: what costs least comes first.
  const std::vector<Change>& all() const { return changes_; }

 private:
  void add_all() {
    const int64_t length = std::max<int64_t>(1, planned_.length), block = recipe_.rollout.kv_block_size;
    const int64_t sequences = std::min(recipe_.rollout.max_sequences, planned_.step.sequences * planned_.step.updates);
    // A KV cache for all completions that run at once, in whole blocks.
    const int64_t wanted = (length + block - 1) / block * block * sequences;
    add_kv_cache(wanted, "no completion waits: the run has no use for more");
    add_free_cache_engine();
    if (trainer_.recompute == "none") add_recompute("selective", "about 5% more training time");
    for (const int64_t share : {2, 4}) add_kv_cache(wanted / share, "fewer completions run at a time");
    if (trainer_.recompute != "full") add_recompute("full", "about 30% more training time");
    for (int64_t tokens = trainer_.micro_batch_tokens / 2; tokens * 2 > length && tokens >= 64; tokens /= 2)
      add_stage_key("micro_batch_tokens", std::to_string(trainer_.micro_batch_tokens), std::to_string(tokens),
                    "more passes per step; gradients are rounded otherwise");
    for (const int64_t share : {8, 16, 32}) add_kv_cache(wanted / share, "far fewer completions run at a time");
    for (const int64_t most : {64, 16})
      if (shares_device_ && sequences > most)
        add({.key = "rollout.max_num_seqs",
             .shown = "rollout.max_num_seqs",
             .places = "rollout.max_num_seqs rollout.max_sequences",
             .before = std::to_string(recipe_.rollout.max_sequences),
             .after = std::to_string(most),
             .cost = "fewer completions run at a time"});
    if (has_f32_moments()) add_stage_key("moments", "\"f32\"", "\"bf16\"", "moments are rounded stochastically");
  }
  // True if the optimizer has running means whose dtype is a key, and it is f32.
  bool has_f32_moments() const {
    Choice<OptimizerSettings> optimizer = trainer_.optimizer;
    const Json keys = to_json([&](Fields& f) { optimizer.fields(f, "optimizer", ""); });
    const Json* moments = keys.find("moments");
    return moments && *moments == Json("f32");
  }
  void add_kv_cache(int64_t tokens, const char* cost) {
    const int64_t block = recipe_.rollout.kv_block_size, longest = (planned_.length + block - 1) / block * block;
    tokens = tokens / block * block;
    if (!shares_device_ || tokens < longest + block || tokens >= recipe_.rollout.kv_cache_tokens) return;
    add({.key = "rollout.kv_cache_tokens",
         .shown = "rollout.kv_cache_tokens",
         .places = "rollout.kv_cache_tokens",
         .before = std::to_string(recipe_.rollout.kv_cache_tokens),
         .after = std::to_string(tokens),
         .cost = cost});
  }
  // All stages share the key, and asynchronous ones refuse it.
  void add_free_cache_engine() {
    if (!shares_device_ || !synchronous_ || recipe_.rollout.free_cache_engine) return;
    add({.key = "rollout.free_cache_engine",
         .shown = "rollout.free_cache_engine",
         .places = "rollout.free_cache_engine",
         .before = "false",
         .after = "true",
         .cost = "each step allocates memory and captures graphs again"});
  }
  void add_recompute(const char* value, const char* cost) {
    add_stage_key("recompute", concat('"', trainer_.recompute, '"'), concat('"', value, '"'), cost);
  }
  void add_stage_key(const std::string& key, std::string before, std::string after, const char* cost) {
    add({.key = concat("stage.", planned_.index, ".", key),
         .shown = concat(prefix_, ".", key),
         .places = concat("stage[", planned_.index, "].", key),
         .before = std::move(before),
         .after = std::move(after),
         .cost = cost});
  }
  void add(Change change) { changes_.push_back(std::move(change)); }

  const Recipe& recipe_;
  const PlannedStage& planned_;
  const bool synchronous_;  // no stage of the recipe samples ahead
  const TrainerConfig& trainer_;
  const std::string prefix_;
  bool shares_device_ = false;
  std::vector<Change> changes_;
};

// The search for values under which every stage fits.
class Fitter {
 public:
  Fitter(const Recipe& recipe, int64_t limit, size_t ranks)
      : recipe_(recipe), limit_(limit), ranks_(ranks), planned_(planned_stages(recipe)) {
    HONE_CHECK(recipe.document, "device.memory: the recipe was not read from a file");
  }
  MemoryFit fit() {
    for (const PlannedStage& planned : planned_) fit_stage(planned);
    drop_superfluous();
    MemoryFit out{.limit_bytes = limit_, .planned_bytes = 0, .stage = {}, .choices = {}};
    for (const PlannedStage& planned : planned_)
      if (const int64_t bytes = total(planned, chosen_); bytes > out.planned_bytes) {
        out.planned_bytes = bytes;
        out.stage = recipe_.stage[planned.index].name;
      }
    for (size_t i = 0; i < chosen_.size(); ++i) {
      std::vector<Change> without = chosen_;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      out.choices.push_back({.key = chosen_[i].shown,
                             .before = chosen_[i].before,
                             .after = chosen_[i].after,
                             .saved_bytes = most_saved(without),
                             .cost = chosen_[i].cost});
    }
    return out;
  }
  // The recipe with the values that fit() chose.
  Recipe chosen_recipe() const { return with(chosen_, {}); }

 private:
  Recipe with(const std::vector<Change>& changes, std::vector<std::string> overrides) const {
    for (const Change& change : changes) overrides.push_back(change.override_text());
    Recipe out = read_recipe(recipe_.document->with(overrides));
    out.source = recipe_.source;
    out.dtype = recipe_.dtype;
    out.device.kind = recipe_.device.kind;
    out.parallel = recipe_.parallel;
    return out;
  }
  int64_t total(const PlannedStage& planned, const std::vector<Change>& changes,
                std::vector<std::string> overrides = {}, std::optional<RankLayout> other = {}) const {
    const Recipe changed = with(changes, std::move(overrides));
    const StageSpec& spec = changed.stage[planned.index];
    PlannedStage stage = planned;
    // The changed stage's trainer; the rest is the same.
    stage.step.trainer = spec.stage->planned_step(planned.shape, nullptr).trainer;
    return measure_largest_rank(changed, stage, other ? *other : layout_of(changed, ranks_)).bytes.at("total").as_int();
  }
  int64_t peak(const std::vector<Change>& changes) const {
    int64_t out = 0;
    for (const PlannedStage& planned : planned_) out = std::max(out, total(planned, changes));
    return out;
  }
  // How much more a stage would need with these changes than with all that were chosen: the largest difference.
  int64_t most_saved(const std::vector<Change>& without) const {
    int64_t out = 0;
    for (const PlannedStage& planned : planned_) out = std::max(out, total(planned, without) - total(planned, chosen_));
    return out;
  }
  bool is_set(const Change& change) const {
    const size_t space = std::min(change.places.find(' '), change.places.size());
    return recipe_.document->has(change.places.substr(0, space)) ||
           (space < change.places.size() && recipe_.document->has(change.places.substr(space + 1)));
  }
  // A later value of a key takes the place of an earlier one.
  static std::vector<Change> with_change(std::vector<Change> changes, const Change& change) {
    std::erase_if(changes, [&](const Change& one) { return one.key == change.key; });
    changes.push_back(change);
    return changes;
  }
  void fit_stage(const PlannedStage& planned) {
    int64_t now = total(planned, chosen_);
    if (now <= limit_) return;
    const StageChanges changes(recipe_, planned_, planned);
    for (const Change& change : changes.all()) {
      if (is_set(change) || is_larger(change)) continue;
      std::vector<Change> tried = with_change(chosen_, change);
      const int64_t bytes = total(planned, tried);
      if (bytes >= now) continue;  // it saves nothing here
      chosen_ = std::move(tried);
      now = bytes;
      if (now <= limit_) return;
    }
    refuse(planned, changes, now);
  }
  // True if an earlier stage has chosen a smaller value of the key.
  bool is_larger(const Change& change) const {
    return std::ranges::any_of(chosen_, [&](const Change& one) {
      const auto is_number = [](const std::string& text) {
        return text.find_first_not_of("0123456789") == std::string::npos;
      };
      return one.key == change.key && is_number(one.after) && is_number(change.after) &&
             std::stoll(one.after) <= std::stoll(change.after);
    });
  }
  // Undoes choices that later ones have made unnecessary, the costliest first.
  void drop_superfluous() {
    for (size_t i = chosen_.size(); i-- > 0;) {
      std::vector<Change> without = chosen_;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      if (peak(without) <= limit_) chosen_ = std::move(without);
    }
  }
  [[noreturn]] void refuse(const PlannedStage& planned, const StageChanges& changes, int64_t needed) const;

  const Recipe& recipe_;
  const int64_t limit_;
  const size_t ranks_;
  const std::vector<PlannedStage> planned_;
  std::vector<Change> chosen_;
};

void Fitter::refuse(const PlannedStage& planned, const StageChanges& changes, int64_t needed) const {
  const StageSpec& spec = recipe_.stage[planned.index];
  std::vector<std::string> help;
  std::vector<Change> set;  // the smallest value of each key that the recipe sets
  for (const Change& change : changes.all())
    if (is_set(change)) set = with_change(std::move(set), change);
  for (const Change& change : set)
    if (const int64_t bytes = total(planned, with_change(chosen_, change)); bytes < needed)
      help.push_back(concat(change.shown, " = ", change.after, " in place of the recipe's ", change.before, " saves ",
                            byte_size_text(needed - bytes)));
  if (start_lora(recipe_).r == 0 && spec.stage->trains_adapters() && !recipe_.model.path.empty()) {
    const int64_t bytes = total(planned, chosen_, {"model.lora.r=16", "model.lora.target_modules=\"all-linear\""});
    if (bytes < needed)
      help.push_back(
          concat("model.lora.r = 16 with target_modules = \"all-linear\" (adapters instead of all weights) saves ",
                 byte_size_text(needed - bytes)));
  }
  RankLayout layout = layout_of(recipe_, ranks_);
  const auto advise = [&](const std::string& what) {
    if (const int64_t bytes = total(planned, chosen_, {}, layout); bytes < needed)
      help.push_back(concat(what, " saves ", byte_size_text(needed - bytes), " of each rank"));
  };
  layout.ranks *= 2;
  advise(concat("parallel.ranks = ", layout.ranks, ranks_ > 1 ? "" : " (several GPUs)"));
  if (ranks_ > 1 && layout.zero < 3) {
    layout = layout_of(recipe_, ranks_);
    layout.zero = 3;
    advise("parallel.zero = 3");
  }
  help.push_back(concat("a limit of ", byte_size_text(rounded_up(needed)), " is enough for this stage"));
  std::string sentence;
  for (const std::string& one : help) sentence += (sentence.empty() ? "" : "; ") + one;
  fail("stage ", spec.name, " needs ", byte_size_text(needed), " of device memory",
       chosen_.empty() ? "" : " with the smallest settings that may be chosen", ", and device.memory allows ",
       byte_size_text(limit_), ": ", sentence);
}

}  // namespace

int64_t memory_limit(const DeviceSettings& settings, const Device& device, int64_t ranks) {
  constexpr double share = 0.9;  // the rest is for the libraries' own memory, and for other programs
  if (settings.memory == "auto")
    return static_cast<int64_t>(share * static_cast<double>(device.free_bytes()) / static_cast<double>(ranks));
  return read_byte_size(settings.memory).value();
}

int64_t memory_limit(const DeviceSettings& settings, int64_t ranks) {
  if (settings.memory != "auto") return read_byte_size(settings.memory).value();
  constexpr const char* advice = ": give a limit, such as device.memory = \"8 GB\"";
  std::unique_ptr<Device> device;
  try {
    device = open_device(settings.kind);
  } catch (const Error& error) {  // a plan needs no device if it is told the limit
    fail("device.memory is auto, and the free memory of ", settings.kind, " cannot be read (", error.what(), ")",
         advice);
  }
  HONE_CHECK(device->kind() != DeviceKind::meta, "device.memory is auto, and the device meta has no memory", advice);
  return memory_limit(settings, *device, ranks);
}

MemoryFit fit_memory(Recipe& recipe, int64_t limit_bytes, size_t ranks) {
  Fitter fitter(recipe, limit_bytes, ranks);
  MemoryFit out = fitter.fit();
  if (!out.choices.empty()) recipe = fitter.chosen_recipe();
  return out;
}

std::string fit_text(const MemoryFit& fit) {
  std::string out = concat("device.memory: the plan needs ", byte_size_text(fit.planned_bytes), " (stage ", fit.stage,
                           ") of ", byte_size_text(fit.limit_bytes));
  if (fit.choices.empty()) return out + ", with the settings of the recipe\n";
  out += ", with these changes:\n";
  size_t width = 0;
  const auto assignment = [](const MemoryChoice& choice) { return concat(choice.key, "=", choice.after); };
  for (const MemoryChoice& choice : fit.choices) width = std::max(width, assignment(choice).size());
  for (const MemoryChoice& choice : fit.choices)
    out += format_text("  %-*s  saves %9s  %s (was %s)\n", static_cast<int>(width), assignment(choice).c_str(),
                       byte_size_text(choice.saved_bytes).c_str(), choice.cost.c_str(), choice.before.c_str());
  return out;
}

Json fit_json(const MemoryFit& fit) {
  JsonArray choices;
  for (const MemoryChoice& choice : fit.choices)
    choices.push_back(JsonObject{{"key", choice.key},
                                 {"before", choice.before},
                                 {"after", choice.after},
                                 {"saved_bytes", choice.saved_bytes},
                                 {"cost", choice.cost}});
  return JsonObject{{"limit_bytes", fit.limit_bytes},
                    {"planned_bytes", fit.planned_bytes},
                    {"stage", fit.stage},
                    {"choices", choices}};
}

}  // namespace hone
