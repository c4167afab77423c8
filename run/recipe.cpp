#include "run/recipe.h"

#include "core/io/file.h"
#include "core/io/json.h"
#include "train/stage.h"

namespace hone {

void LoraSource::fields(Fields& f) {
  config.fields(f);
  f("merge", merge, "when a stage ends write its model with the adapters merged, too: checkpoints/STAGE/merged");
}

void ModelSource::fields(Fields& f) {
  f("path", path, "model folder to start from (config.json, safetensors, tokenizer); empty = random weights");
  f("config", config, "config.json that gives random weights their shape; empty = the keys below");
  f("family", family, "model_type of a model made from the keys below (hone list families)");
  f("hidden_size", hidden_size, "width D");
  f("intermediate_size", intermediate_size, "width of the MLP; 0 = 8/3 D rounded up to a multiple of 16");
  f("num_hidden_layers", num_hidden_layers, "blocks");
  f("num_attention_heads", num_attention_heads, "query heads");
  f("num_key_value_heads", num_key_value_heads, "key and value heads; 0 = num_attention_heads");
  f("head_dim", head_dim, "0 = hidden_size / num_attention_heads");
  f("vocab_size", vocab_size, "0 = the tokenizer's");
  f("max_position_embeddings", max_position_embeddings, "longest sequence in tokens");
  f("rope_theta", rope_theta, "base of the rotary positions");
  f("rms_norm_eps", rms_norm_eps, "of the norms");
  f("initializer_range", initializer_range, "standard deviation of random weights");
  f("tie_word_embeddings", tie_word_embeddings, "the head is the embedding");
  f("save_dtype", save_dtype,
    "dtype of saved weights: f32 | bf16 | auto (as in memory, which keeps a resumed run exact)");
  f("lora", lora, "adapters to train instead of the weights");
  f.require("save_dtype", save_dtype == "auto" || save_dtype == "f32" || save_dtype == "bf16",
            "save_dtype must be auto, f32 or bf16");
  constexpr int64_t widest = int64_t{1} << 24;
  for (const auto& [key, size] : {std::pair{"hidden_size", hidden_size},
                                  {"num_attention_heads", num_attention_heads},
                                  {"num_hidden_layers", num_hidden_layers}})
    f.require(key, size > 0 && size <= widest, concat(key, " must be in [1, ", widest, "]"));
  f.require("head_dim", head_dim > 0 || hidden_size % num_attention_heads == 0,
            "hidden_size must be a multiple of num_attention_heads, or head_dim be given");
}

Json ModelSource::make_config(int64_t tokenizer_vocab_size) const {
  if (!config.empty()) return parse_json(read_file(expand_path(config)), expand_path(config));
  const int64_t vocabulary = vocab_size ? vocab_size : tokenizer_vocab_size;
  HONE_CHECK(vocabulary > 0, "model: vocab_size is not given and there is no tokenizer to take it from");
  return JsonObject{{"model_type", family},
                    {"hidden_size", hidden_size},
                    {"intermediate_size", intermediate_size ? intermediate_size : (hidden_size * 8 / 3 + 15) / 16 * 16},
                    {"num_hidden_layers", num_hidden_layers},
                    {"num_attention_heads", num_attention_heads},
                    {"num_key_value_heads", num_key_value_heads ? num_key_value_heads : num_attention_heads},
                    {"head_dim", head_dim ? head_dim : hidden_size / num_attention_heads},
                    {"vocab_size", vocabulary},
                    {"max_position_embeddings", max_position_embeddings},
                    {"rope_theta", rope_theta},
                    {"rms_norm_eps", rms_norm_eps},
                    {"initializer_range", initializer_range},
                    {"hidden_act", "silu"},
                    {"tie_word_embeddings", tie_word_embeddings}};
}

void RolloutConfig::fields(Fields& f) {
  EngineConfig::fields(f);
  f("device", device,
    "where the engine of a stage with max_staleness above 0 computes: cuda:1, say, for the second GPU; empty = beside "
    "the learner");
  pool.fields(f);
  f.require("device", device.empty() || devices().contains(device.substr(0, device.find(':'))),
            devices().unknown(device));
}

void EvalEntry::fields(Fields& f) {
  f("task", task, "task to evaluate: a name in configs/tasks or a TOML file");
  options.fields(f);
}

Registry<StageFactory>& stages() {
  static Registry<StageFactory> registry("stage");
  return registry;
}

void StageSpec::fields(Fields& f) {
  f("kind", kind, "what the stage does (hone list stages)");
  f("name", name,
    "of its checkpoints and its line in the report; default: the kind, or the objective of a preference or rl stage");
  if (f.reading()) {
    f.require("kind", stages().contains(kind),
              kind.empty() ? "a stage needs a kind; known: " + join(stages().names()) : stages().unknown(kind));
    stage = stages().at(kind)();
  }
  if (!stage) return;  // the page of all keys shows each kind by itself
  stage->fields(f);
  if (name.empty()) name = stage->default_name();
  f.require("name", name.find('/') == std::string::npos && name != "." && name != "..",
            "a stage's name is a folder's too: without /");
}

void Recipe::fields(Fields& f) {
  f("name", name, "of the run and its folder");
  f("runs", runs, "folder that holds run folders");
  f("seed", seed, "of random weights, data order and sampling");
  f("device", device, "cpu | cuda | auto (cuda where there is one)");
  f("dtype", dtype,
    "of weights and activations: f32 | bf16 (cuda alone; the optimizer keeps f32 masters) | auto (bf16 on cuda, f32 on "
    "cpu, and what a run's own "
    "recipe "
    "says then)");
  f("numerics", numerics,
    "exact: sampler and learner compute the same bits | fast: matrix products of a GPU may depend on the number of "
    "rows");
  f("threads", threads, "CPU threads; 0 = all. Results do not depend on it");
  f("tokenizer", tokenizer, "tokenizer folder or file; empty = the model folder's, or a tokenizer stage's");
  f("model", model, "the model to start from");
  f("rollout", rollout, "the engine that samples");
  f("eval", eval, "tasks evaluated before and after every training stage");
  f("stage", stage, "what is done, in order");
  f.require("name", !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..",
            "name is a folder's: not empty, without /");
  f.require("device", device == "auto" || devices().contains(device), devices().unknown(device));
  f.require("dtype", dtype == "auto" || dtype == "f32" || dtype == "bf16", "dtype must be auto, f32 or bf16");
  f.require("numerics", numerics == "exact" || numerics == "fast", "numerics must be exact or fast");
  f.require("threads", threads >= 0 && threads <= 4096, "threads must be in [0, 4096]");
  f.require("stage", !stage.empty(), "a recipe needs at least one [[stage]]");
  for (size_t i = 0; i < stage.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      f.require("stage", stage[i].name != stage[j].name,
                concat("two stages are called '", stage[i].name, "'; give one another name"));
  if (f.reading())
    for (StageSpec& spec : stage) spec.stage->resolve(*this);
}

std::string Recipe::model_source() const {
  if (!model.config.empty()) return expand_path(model.config);
  return (source.empty() ? "" : source + ": ") + "[model]";
}

Recipe read_recipe(const std::string& path, std::span<const std::string> overrides) {
  Recipe out = Config::from_file(path, overrides).as<Recipe>();
  out.source = path;
  return out;
}

}  // namespace hone
