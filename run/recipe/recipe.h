#pragma once
// A recipe: all settings of a run, from TOML. The run folder holds the resolved recipe, with every key.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config/choice.h"
#include "core/config/config.h"
#include "core/text/chat_settings.h"
#include "core/text/tokenizer/tokenizer.h"
#include "eval/task.h"
#include "model/initialization.h"
#include "model/model.h"
#include "posttrain/rl/rollout_config.h"
#include "run/recipe/decoder_source.h"
#include "run/recipe/parallel.h"
#include "run/recipe/tracker.h"
#include "train/stage.h"

namespace hone {

// LoRA adapters. Every stage but pretrain trains them instead of the weights; a stage continues with the adapters of
// the one before.
struct LoraSource {
  LoraConfig config;
  bool merge = false;
  void fields(Fields& f);
};

// The model a run starts from: the weights of a folder (path), or random weights in the shape of a config.json (config)
// or of the keys below (Hugging Face's names, as in a Llama config).
// Experts of random weights, and how their routers are trained. The losses' keys hold for loaded models, too.
struct RouterSource {
  int64_t num_experts = 0, num_experts_per_tok = 2, moe_intermediate_size = 0, shared_expert_intermediate_size = 0;
  double aux_loss_coef = -1, z_loss_coef = -1, bias_update_rate = -1, capacity_factor = -1;
  std::string aux_loss_scope;
  void fields(Fields& f);
  // The members of config.json that differ from the model's own. They are an Error for a model without experts.
  JsonObject config_changes() const;
};

struct ModelSource {
  std::string path, config, family = "llama";
  int64_t hidden_size = 128, intermediate_size = 0, num_hidden_layers = 4, num_attention_heads = 4,
          num_key_value_heads = 0, head_dim = 0;
  int64_t vocab_size = 0, max_position_embeddings = 512;
  double rope_theta = 10000, rms_norm_eps = 1e-6, initializer_range = 0.02;
  bool tie_word_embeddings = true;
  int64_t num_nextn_predict_layers = 0;
  double mtp_loss_coef = -1;
  bool use_long_rope = false;
  InitConfig init;
  std::string save_dtype = "auto";
  ChatSettings chat;
  LoraSource lora;
  RouterSource router;
  DecoderSource decoder;
  void fields(Fields& f);
  // The members of config.json that differ from the model's own: factors of losses made inside it.
  JsonObject config_changes() const;
  // The config.json of random weights. vocab_size 0 takes the tokenizer's.
  Json make_config(int64_t tokenizer_vocab_size) const;

 private:
  Json shape_config(int64_t tokenizer_vocab_size) const;
};

// Throws Error if the source sets losses that the model does not have.
void check_losses(const ModelSource& source, const Model& model);

// An evaluation task, run before the first training stage, after each, and every eval_steps steps.
struct EvalEntry {
  std::string task;  // a name or file (eval/task.h)
  EvalOptions options;
  void fields(Fields& f);
};

struct StageSpec {
  Choice<Stage> stage;
  std::string name;  // of its checkpoints and its line in the report; empty = the stage's own
  const std::string& kind() const { return stage.kind(); }
  std::string label() const { return name.empty() && stage ? stage->default_name() : name; }
  void fields(Fields& f);
};

// The device that computes, and the memory that the run may take of it. device = "cuda" is short for [device] kind.
struct DeviceSettings {
  std::string kind = "auto";
  std::string memory;  // empty = no limit | auto | a size (core/config/byte_size.h)
  void fields(Fields& f);
  bool limits_memory() const { return !memory.empty(); }
};

struct Recipe {
  std::string name = "run", runs = "runs", dtype = "auto", numerics = "exact", tokenizer;
  int64_t seed = 0, threads = 0;
  int64_t weights_seed = -1, data_seed = -1, sampling_seed = -1;  // -1: seed
  double peak_tflops = 0;
  DeviceSettings device;
  ModelSource model;
  RolloutConfig rollout;
  ParallelConfig parallel;
  TrackerConfig tracker;
  std::vector<EvalEntry> eval;
  std::vector<StageSpec> stage;
  std::string source;                      // the file it was read from, for messages
  std::shared_ptr<const Config> document;  // that it was read from: places of keys, strings as written; may be null
  void fields(Fields& f);
  // A seed of its own, or `seed` if it is -1.
  int64_t seed_or(int64_t own) const { return own == -1 ? seed : own; }
  // The resolved recipe. Strings are as written in the document: ${NAME} stays.
  std::string toml() const;
  Json json() const;
  StageSettings stage_settings() const { return {.device = device.kind, .rollout = &rollout}; }
  // The place of the model's shape for messages: its config, or [model] of the recipe.
  std::string model_source() const;
};

// Reads a recipe, names its stages and resolves them.
Recipe read_recipe(Config config);
Recipe read_recipe(const std::string& path, std::span<const std::string> overrides);
// The same recipe, read again: its stages are objects of their own.
Recipe read_again(const Recipe& recipe);

}  // namespace hone
