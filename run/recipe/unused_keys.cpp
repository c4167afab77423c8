#include "run/recipe/unused_keys.h"

#include "run/recipe/start.h"
#include "train/optim/schedule.h"

namespace hone {
namespace {

// A family resolves each key that it reads: without the key, its config.json has the default.
bool reads(const Model& model, const std::string& key) {
  Json config = model.config();
  std::erase_if(config.object_ref(), [&](const auto& member) { return member.first == key; });
  try {
    return make_model(config, "model")->config().find(key) != nullptr;
  } catch (const Error&) {  // it cannot do without the key
    return true;
  }
}

// With `path` or `config` the shape comes from a file.
void check_shape_keys(const ModelSource& source, const Problems& problems) {
  if (source.path.empty() && source.config.empty()) return;
  const ModelSource defaults;
  const std::string from = source.path.empty() ? "config" : "path";
  if (!source.path.empty() && !source.config.empty())
    problems.add("model.config", "config has no effect: path gives the model's shape and weights; remove one of them");
  const auto differs = [&](auto member) { return source.*member != defaults.*member; };
  for (const auto& [key, given] : {std::pair{"family", differs(&ModelSource::family)},
                                   {"hidden_size", differs(&ModelSource::hidden_size)},
                                   {"intermediate_size", differs(&ModelSource::intermediate_size)},
                                   {"num_hidden_layers", differs(&ModelSource::num_hidden_layers)},
                                   {"num_attention_heads", differs(&ModelSource::num_attention_heads)},
                                   {"num_key_value_heads", differs(&ModelSource::num_key_value_heads)},
                                   {"head_dim", differs(&ModelSource::head_dim)},
                                   {"vocab_size", differs(&ModelSource::vocab_size)},
                                   {"max_position_embeddings", differs(&ModelSource::max_position_embeddings)},
                                   {"rope_theta", differs(&ModelSource::rope_theta)},
                                   {"rms_norm_eps", differs(&ModelSource::rms_norm_eps)},
                                   {"initializer_range", differs(&ModelSource::initializer_range)},
                                   {"tie_word_embeddings", differs(&ModelSource::tie_word_embeddings)},
                                   {"decoder", !source.decoder.config().empty()}})
    if (given)
      problems.add(concat("model.", key),
                   concat(key, " has no effect: ", from, " gives the model's shape; remove ", key, " or ", from));
  if (!source.path.empty() && source.init != InitConfig())
    problems.add("model.init", "init has no effect: path gives the model's weights; remove [model.init] or path");
}

// r = 0 in the recipe switches its other keys off.
void check_adapter_keys(const Recipe& recipe, const Problems& problems) {
  const LoraSource& given = recipe.model.lora;
  const bool r_is_given = recipe.document && recipe.document->has("model.lora.r");
  if (given.config.r > 0 || r_is_given || (given.config == LoraConfig() && !given.merge)) return;
  if (!starts_from_adapter(recipe))
    problems.add("model.lora",
                 "model.lora has no effect: it has no r, so there are no adapters; set model.lora.r, or remove "
                 "[model.lora]");
  else if (given.config != LoraConfig())
    problems.add("model.lora",
                 "model.lora has no effect: it has no r, so the adapter of model.path keeps its own settings; set "
                 "model.lora.r, or remove the other keys");
}

void check_schedule_keys(const Recipe& recipe, const Problems& problems) {
  const Json defaults = to_json([](Fields& f) { ScheduleConfig().fields(f); });
  for (size_t i = 0; i < recipe.stage.size(); ++i) {
    StageSpec copy = recipe.stage[i];
    const Json keys = to_json([&](Fields& f) { copy.fields(f); });
    const Json* const kind = keys.find("lr_scheduler_type");
    if (!kind || *kind == Json("wsd")) continue;
    const Problems stage = problems.table(concat("stage[", i, "]"), concat("stage ", copy.name, ": "));
    for (const char* key : {"decay_ratio", "decay_type"})
      if (const Json* given = keys.find(key); given && *given != *defaults.find(key))
        stage.add(key, concat(key, " has no effect with lr_scheduler_type = ", kind->as_string(), ": it is for wsd"));
  }
}

}  // namespace

void check_unused_keys(const Recipe& recipe, const Problems& problems) {
  check_shape_keys(recipe.model, problems);
  check_adapter_keys(recipe, problems);
  check_schedule_keys(recipe, problems);
}

std::vector<std::pair<std::string, std::string>> unread_keys(const ModelSource& source, const Model& model) {
  if (!source.path.empty() || !source.config.empty()) return {};
  const RouterSource& router = source.router;
  const ModelSource defaults;
  const int64_t heads = source.num_attention_heads;
  const std::string family = model.config().at("model_type").as_string();
  const std::string unread = concat("layers of the family ", family, " do not have it; remove the key");
  struct Key {
    std::string table, name;
    bool given;  // the family's own choice would differ
    std::string reason;
  };
  const Key keys[] = {
      {"model.router.", "moe_intermediate_size", router.moe_intermediate_size > 0,
       concat("the experts of the family ", family, " have the width model.intermediate_size; set that key instead")},
      {"model.router.", "shared_expert_intermediate_size", router.shared_expert_intermediate_size > 0,
       concat("the family ", family,
              " has no shared expert with a gate; remove the key, or choose qwen2_moe or hone_decoder")},
      {"model.", "num_key_value_heads", source.num_key_value_heads > 0 && source.num_key_value_heads != heads, unread},
      {"model.", "head_dim", source.head_dim > 0 && source.head_dim * heads != source.hidden_size, unread},
      {"model.", "rope_theta", source.rope_theta != defaults.rope_theta, unread},
      {"model.", "rms_norm_eps", source.rms_norm_eps != defaults.rms_norm_eps, unread},
  };
  std::vector<std::pair<std::string, std::string>> out;
  for (const Key& key : keys)
    if (key.given && !reads(model, key.name))
      out.emplace_back(key.table + key.name, concat(key.name, " has no effect: ", key.reason));
  return out;
}

}  // namespace hone
