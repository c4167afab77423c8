#pragma once
// A recipe: the whole of a run, from TOML. The resolved recipe, every key written, lies in the run folder.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "eval/task.h"
#include "model/model.h"
#include "rollout/remote/worker_pool.h"

namespace hone {

class Stage;

// Adapters instead of whole weights: every stage but pretrain trains them, one stage goes on with those of the one
// before.
struct LoraSource {
  LoraConfig config;
  bool merge = false;
  void fields(Fields& f);
};

// The model a run starts from: a folder with weights (path), or random weights in the shape of a config.json (config),
// or of these keys (Hugging Face's names, as a Llama config has them).
struct ModelSource {
  std::string path, config, family = "llama";
  int64_t hidden_size = 128, intermediate_size = 0, num_hidden_layers = 4, num_attention_heads = 4,
          num_key_value_heads = 0, head_dim = 0;
  int64_t vocab_size = 0, max_position_embeddings = 512;
  double rope_theta = 10000, rms_norm_eps = 1e-6, initializer_range = 0.02;
  bool tie_word_embeddings = true;
  std::string save_dtype = "auto";
  LoraSource lora;
  void fields(Fields& f);
  // config.json for random weights; vocab_size 0 takes the tokenizer's.
  Json make_config(int64_t tokenizer_vocab_size) const;
};

// The engine that samples, and where it is.
struct RolloutConfig : EngineConfig {
  std::string device;  // of an engine that writes replies while the learner learns; empty = the learner's
  WorkerPoolConfig pool;
  // It takes memory of the learner's device.
  bool shares_learner_device() const { return device.empty() && pool.workers.empty(); }
  void fields(Fields& f);
};

// A task to evaluate before and after every training stage.
struct EvalEntry {
  std::string task;  // a name or file (eval/task.h)
  EvalOptions options;
  void fields(Fields& f);
};

struct StageSpec {
  std::string kind, name;        // name: of its checkpoints and its line in the report; the kind's own unless given
  std::shared_ptr<Stage> stage;  // made while fields() reads
  void fields(Fields& f);
};

struct Recipe {
  std::string name = "run", runs = "runs", device = "auto", dtype = "auto", numerics = "exact", tokenizer;
  int64_t seed = 0, threads = 0;
  ModelSource model;
  RolloutConfig rollout;
  std::vector<EvalEntry> eval;
  std::vector<StageSpec> stage;
  std::string source;  // the file it was read from, for messages
  void fields(Fields& f);
  // Where the model's shape is written: its config, or the recipe's keys.
  std::string model_source() const;
};

Recipe read_recipe(const std::string& path, std::span<const std::string> overrides);

}  // namespace hone
