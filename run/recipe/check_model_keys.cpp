#include "run/recipe/check_model_keys.h"

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

}  // namespace

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
