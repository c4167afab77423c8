#include "run/recipe/start.h"

#include "core/io/file.h"
#include "core/io/json.h"
#include "model/io/adapter.h"
#include "model/io/model_files.h"
#include "model/io/model_folder.h"

namespace hone {

std::unique_ptr<Model> start_model(const Recipe& recipe) {
  if (!recipe.model.path.empty()) {
    const std::filesystem::path folder = expand_path(recipe.model.path), base = base_folder(folder);
    Json config = read_model_config(base);
    if (config.is_object() && needs_long_rope(folder)) config.set("use_long_rope", true);
    if (config.is_object())
      for (const auto& [key, value] : recipe.model.config_changes()) config.set(key, value);
    std::unique_ptr<Model> model = make_model(config, config_source(base));
    if (lacks_predictions(*model, base)) {  // as load_model()
      config.set("num_nextn_predict_layers", int64_t{0});
      model = make_model(config, config_source(base));
    }
    check_losses(recipe.model, *model);
    return model;
  }
  int64_t vocabulary = recipe.tokenizer.empty() ? 0 : Tokenizer::load(expand_path(recipe.tokenizer)).vocab_size();
  for (const StageSpec& spec : recipe.stage)
    if (const int64_t made = spec.stage->vocab_size()) vocabulary = made;
  std::unique_ptr<Model> model = make_model(recipe.model.make_config(vocabulary), recipe.model_source());
  check_losses(recipe.model, *model);
  return model;
}

bool starts_from_adapter(const Recipe& recipe) {
  return !recipe.model.path.empty() && is_adapter(expand_path(recipe.model.path));
}

LoraConfig start_lora(const Recipe& recipe) {
  return starts_from_adapter(recipe) ? read_lora_config(expand_path(recipe.model.path)) : recipe.model.lora.config;
}

std::optional<Tokenizer> start_tokenizer(const Recipe& recipe, const std::filesystem::path& checkpoint) {
  namespace fs = std::filesystem;
  const fs::path own = expand_path(recipe.tokenizer), model = expand_path(recipe.model.path);
  const fs::path& original = own.empty() ? model : own;
  if (original.empty()) return std::nullopt;
  const auto load = [&](const fs::path& path) { return recipe.model.chat.with_settings(Tokenizer::load(path)); };
  if (!fs::exists(original) && !checkpoint.empty() && Tokenizer::is_in(checkpoint)) return load(checkpoint);
  if (!own.empty()) return load(own);
  const fs::path folder = tokenizer_folder(model);
  return Tokenizer::is_in(folder) ? std::optional(load(folder)) : std::nullopt;
}

}  // namespace hone
