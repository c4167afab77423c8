#include "run/recipe/recipe.h"

#include "core/config/byte_size.h"
#include "core/device/cuda_facts.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/program_files.h"
#include "model/io/known_shapes.h"
#include "model/mtp.h"

namespace hone {

void LoraSource::fields(Fields& f) {
  config.fields(f);
  f("merge", merge, "also write the model with merged adapters at the end of a stage: checkpoints/STAGE/merged");
}

void RouterSource::fields(Fields& f) {
  f("num_experts", num_experts, "experts per layer of random weights, for a family that has them; 0 = the family's");
  f("num_experts_per_tok", num_experts_per_tok, "experts of each token, with num_experts");
  f("moe_intermediate_size", moe_intermediate_size,
    "width of an expert's MLP; 0 = model.intermediate_size, which mixtral, olmoe and gpt_oss always take");
  f("shared_expert_intermediate_size", shared_expert_intermediate_size,
    "width of the shared expert of qwen2_moe and hone_decoder, which has a gate; 0 = the family's");
  f("aux_loss_coef", aux_loss_coef, "factor of the balance loss; 0 = off, -1 = router_aux_loss_coef of config.json");
  f("aux_loss_scope", aux_loss_scope,
    "what the balance loss is computed over: sequence (equal for any micro-batches and ranks) | micro_batch (as "
    "transformers) | empty = that of config.json, else sequence");
  f("z_loss_coef", z_loss_coef, "factor of the router z-loss; 0 = off, -1 = that of config.json");
  f("bias_update_rate", bias_update_rate,
    "step of the routers' bias towards even load, balance without a loss (DeepSeek-V3); 0 = no bias, -1 = that of "
    "config.json");
  f("capacity_factor", capacity_factor,
    "most choices of an expert in a micro-batch of training, over the mean; later ones are dropped; 0 = no limit, -1 = "
    "that of config.json");
  f.require("aux_loss_scope", aux_loss_scope.empty() || aux_loss_scope == "sequence" || aux_loss_scope == "micro_batch",
            "aux_loss_scope must be sequence, micro_batch or empty");
  for (const auto& [key, value] : {std::pair{"aux_loss_coef", aux_loss_coef},
                                   {"z_loss_coef", z_loss_coef},
                                   {"bias_update_rate", bias_update_rate},
                                   {"capacity_factor", capacity_factor}})
    f.require(key, value == -1 || (value >= 0 && value <= 1e6), concat(key, " must be -1, or in [0, 1e6]"));
  f.require("num_experts", num_experts >= 0 && num_experts <= 4096, "num_experts must be in [0, 4096]");
  for (const auto& [key, size] : {std::pair{"moe_intermediate_size", moe_intermediate_size},
                                  {"shared_expert_intermediate_size", shared_expert_intermediate_size}}) {
    f.require(key, size >= 0 && size <= int64_t{1} << 24, concat(key, " must be in [0, ", int64_t{1} << 24, "]"));
    f.require(key, size == 0 || num_experts > 0, concat(key, " has no effect without num_experts"));
  }
  f.require("num_experts_per_tok", num_experts > 0 || num_experts_per_tok == RouterSource().num_experts_per_tok,
            "num_experts_per_tok has no effect without num_experts");
  f.require("num_experts_per_tok", num_experts == 0 || (num_experts_per_tok >= 1 && num_experts_per_tok <= num_experts),
            "num_experts_per_tok must be in [1, num_experts]");
}

JsonObject RouterSource::config_changes() const {
  JsonObject out;
  for (const auto& [key, value] : {std::pair{"router_aux_loss_coef", aux_loss_coef},
                                   {"router_z_loss_coef", z_loss_coef},
                                   {"router_bias_update_rate", bias_update_rate},
                                   {"expert_capacity_factor", capacity_factor}})
    if (value >= 0) out.emplace_back(key, value);
  if (!aux_loss_scope.empty()) out.emplace_back("router_aux_loss_scope", aux_loss_scope);
  return out;
}

static void check_router(const RouterSource& router, const Model& model) {
  if (router.num_experts == 0 && router.config_changes().empty()) return;
  const Json config = model.config();
  const Mtp* const mtp = mtp_of(model);
  HONE_CHECK(
      model.num_aux_sums() > (mtp ? mtp->num_aux_sums() : 0), "model.router: the model's family, ",
      config.at("model_type").as_string(),
      ", has no experts in this shape; remove [model.router], or choose a family that has them (qwen3_moe, olmoe, "
      "mixtral; deepseek_v3 with more layers than first_k_dense_replace; hone_decoder with mlp = [\"experts\"])");
}

void check_losses(const ModelSource& source, const Model& model) {
  check_router(source.router, model);
  HONE_CHECK(source.router.num_experts == 0 || (source.path.empty() && source.config.empty()),
             "model.router.num_experts: it is for random weights of model.family; here ",
             source.path.empty() ? "model.config" : "model.path", " says how many experts there are; remove the key");
  const Mtp* const mtp = mtp_of(model);
  HONE_CHECK(source.path.empty() || source.num_nextn_predict_layers == 0 ||
                 (mtp && static_cast<int64_t>(mtp->size()) == source.num_nextn_predict_layers),
             "model.num_nextn_predict_layers is ", source.num_nextn_predict_layers,
             ", but the model of model.path has ", mtp ? mtp->size() : 0, "; the key is for random weights, remove it");
  HONE_CHECK(!source.path.empty() || source.num_nextn_predict_layers == 0 || mtp_of(model),
             "model.num_nextn_predict_layers: the family ", model.config().at("model_type").as_string(),
             " has no layers of multi-token prediction; remove the key, or choose a family with Llama's layout");
  HONE_CHECK(source.mtp_loss_coef < 0 || mtp_of(model),
             "model.mtp_loss_coef: the model has no layers of multi-token prediction; remove the key, or start from "
             "random weights with num_nextn_predict_layers");
}

JsonObject ModelSource::config_changes() const {
  JsonObject out = router.config_changes();
  if (mtp_loss_coef >= 0) out.emplace_back("mtp_loss_coef", mtp_loss_coef);
  if (use_long_rope) out.emplace_back("use_long_rope", true);
  return out;
}

void ModelSource::fields(Fields& f) {
  f("path", path,
    "model folder (config.json, safetensors, tokenizer) or .gguf file to start from, without the keys of a shape "
    "below; empty = random weights");
  f("config", config,
    "config.json with the shape of random weights, or the name of a known shape (hone list shapes); empty = the keys "
    "below");
  f("family", family, "model_type of random weights (hone list families)");
  f("hidden_size", hidden_size, "width of the residual stream");
  f("intermediate_size", intermediate_size, "width of the MLP; 0 = 8/3 hidden_size, rounded up to a multiple of 16");
  f("num_hidden_layers", num_hidden_layers, "decoder layers");
  f("num_attention_heads", num_attention_heads, "query heads");
  f("num_key_value_heads", num_key_value_heads, "key and value heads; 0 = num_attention_heads");
  f("head_dim", head_dim, "0 = hidden_size / num_attention_heads");
  f("vocab_size", vocab_size, "0 = the tokenizer's");
  f("max_position_embeddings", max_position_embeddings, "longest sequence in tokens");
  f("rope_theta", rope_theta, "base of RoPE");
  f("rms_norm_eps", rms_norm_eps, "epsilon of the norms");
  f("initializer_range", initializer_range, "standard deviation of random weights");
  f("tie_word_embeddings", tie_word_embeddings, "lm_head shares the weights of the embedding");
  f("num_nextn_predict_layers", num_nextn_predict_layers,
    "layers of multi-token prediction of random weights: each predicts one token further ahead in training "
    "(DeepSeek-V3); 0 = none, or those of `config`");
  f("mtp_loss_coef", mtp_loss_coef,
    "factor of the loss of multi-token prediction; 0 = off, -1 = that of config.json, else 0.3");
  f("use_long_rope", use_long_rope,
    "RoPE of the type longrope (Phi-3): take long_factor for all positions, so that texts may have "
    "max_position_embeddings tokens; false = as config.json says, else short_factor and "
    "original_max_position_embeddings tokens");
  f("init", init, "how random weights are drawn");
  f("decoder", decoder, "layers of random weights of the family hone_decoder");
  f("save_dtype", save_dtype,
    "dtype of saved weights: f32 | bf16 | auto (as in memory, so that a resumed run has the same bits)");
  chat.fields(f);
  f("lora", lora, "LoRA adapters to train instead of the weights");
  f("router", router, "experts of random weights; losses of the routers of a mixture of experts");
  f.require("decoder", family == "hone_decoder" || decoder.config().empty(),
            "the keys of [model.decoder] need model.family = \"hone_decoder\"");
  f.require("save_dtype", save_dtype == "auto" || save_dtype == "f32" || save_dtype == "bf16",
            "save_dtype must be auto, f32 or bf16");
  constexpr int64_t widest = int64_t{1} << 24;
  for (const auto& [key, size] : {std::pair{"hidden_size", hidden_size},
                                  {"num_attention_heads", num_attention_heads},
                                  {"num_hidden_layers", num_hidden_layers}})
    f.require(key, size > 0 && size <= widest, concat(key, " must be in [1, ", widest, "]"));
  f.require("num_nextn_predict_layers", num_nextn_predict_layers >= 0 && num_nextn_predict_layers <= 16,
            "num_nextn_predict_layers must be in [0, 16]");
  f.require("mtp_loss_coef", mtp_loss_coef == -1 || (mtp_loss_coef >= 0 && mtp_loss_coef <= 1e6),
            "mtp_loss_coef must be -1, or in [0, 1e6]");
  f.require("head_dim", head_dim > 0 || hidden_size % num_attention_heads == 0,
            "hidden_size must be a multiple of num_attention_heads, or head_dim be given");
}

Json ModelSource::make_config(int64_t tokenizer_vocab_size) const {
  Json out = shape_config(tokenizer_vocab_size);
  if (!out.is_object()) return out;
  for (const auto& [key, value] : config_changes()) out.set(key, value);
  if (num_nextn_predict_layers > 0) out.set("num_nextn_predict_layers", num_nextn_predict_layers);
  return out;
}

Json ModelSource::shape_config(int64_t tokenizer_vocab_size) const {
  if (is_known_shape(config)) return known_shape(config);
  if (!config.empty()) return parse_json(read_file(expand_path(config)), expand_path(config));
  const int64_t vocabulary = vocab_size ? vocab_size : tokenizer_vocab_size;
  HONE_CHECK(vocabulary > 0, "model: vocab_size is not given and there is no tokenizer to take it from");
  const int64_t inner = intermediate_size ? intermediate_size : (hidden_size * 8 / 3 + 15) / 16 * 16;
  JsonObject out{{"model_type", family},
                 {"hidden_size", hidden_size},
                 {"intermediate_size", inner},
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
  Json composed = std::move(out);
  if (family == "gpt2" && intermediate_size > 0) composed.set("n_inner", intermediate_size);  // its own name
  for (const auto& [key, value] : decoder.config()) composed.set(key, value);
  if (router.num_experts == 0) return composed;
  composed.set("num_experts", router.num_experts);
  composed.set("num_experts_per_tok", router.num_experts_per_tok);
  composed.set("moe_intermediate_size", router.moe_intermediate_size ? router.moe_intermediate_size : inner);
  if (router.shared_expert_intermediate_size > 0)
    composed.set("shared_expert_intermediate_size", router.shared_expert_intermediate_size);
  return composed;
}

void EvalEntry::fields(Fields& f) {
  f("task", task, "evaluation task: a name in configs/tasks or a TOML file");
  options.fields(f);
}

void StageSpec::fields(Fields& f) {
  f.alias_value("kind", "labelled", "unpaired_preference");
  stage.fields(f, "kind", "what the stage does (hone list stages)", [&] {
    f("name", name,
      "name of its checkpoints and its line in the report; empty = the kind, or the objective if the stage has one");
  });
  f.require("name", name.find('/') == std::string::npos && name != "." && name != "..",
            "name is also the name of a folder: it may not have a /, and not be . or ..");
}

// Reads a string, or a whole number as its digits.
static void text_or_number(Fields& f, const char* key, std::string& v, const char* doc) {
  if (!f.reading()) return f(key, v, doc);
  try {
    f(key, v, doc);
  } catch (const Error&) {  // not a string
    int64_t number = 0;
    f(key, number, doc);
    v = std::to_string(number);
  }
}

// True for "auto", a kind of device, and a kind with an index.
static bool names_device(const std::string& text) {
  return text == "auto" || devices().contains(text.substr(0, text.find(':')));
}

void DeviceSettings::fields(Fields& f) {
  f("kind", kind, "cpu | cuda | cuda:1 (the second GPU) | auto (cuda if the machine has a GPU)");
  text_or_number(
      f, "memory", memory,
      "limit of the device's memory: a size such as \"8 GB\", \"12 GiB\" or a number of bytes | auto (90% of "
      "what is free when the run starts) | empty = no limit. Keys that the recipe does not set are chosen to "
      "fit, and the run never allocates more (docs/howto/memory.md)");
  f.require("kind", names_device(kind), unknown_device(kind));
  f.require("memory", memory.empty() || memory == "auto" || read_byte_size(memory),
            concat("memory is '", memory,
                   "': it must be auto, a size such as \"8 GB\" or \"12 GiB\", or a number of bytes "
                   "above 0"));
}

// [device], or its kind alone: device = "cuda".
static void device_fields(Fields& f, DeviceSettings& device) {
  constexpr const char* doc = "the device that computes; a string is its kind: device = \"cuda\"";
  if (!f.reading()) return f("device", device, doc);
  try {
    f("device", device.kind, doc);
  } catch (const Error&) {  // not a string
    return f("device", device, doc);
  }
  f.require("device", names_device(device.kind), unknown_device(device.kind));
}

void Recipe::fields(Fields& f) {
  f("name", name, "name of the run and its folder");
  f("runs", runs, "folder that holds run folders");
  f("seed", seed, "seed of random weights, data order, sampling, dropout and noise");
  f("weights_seed", weights_seed, "seed of random weights and new adapters; -1 = seed");
  f("data_seed", data_seed, "seed of the order of data, of held-out shares and of tasks; -1 = seed");
  f("sampling_seed", sampling_seed, "seed of the completions that rl samples; -1 = seed");
  device_fields(f, device);
  f("dtype", dtype,
    "dtype of weights and activations: f32 | bf16 (cuda only; the optimizer keeps f32 master weights) | auto (bf16 on "
    "cuda, f32 on cpu; the run folder's recipe has the one that was chosen)");
  f("numerics", numerics,
    "exact: sampler and learner compute the same bits | fast: GEMMs of a GPU may depend on the number of rows");
  f("threads", threads, "CPU threads; 0 = all. Results do not depend on it");
  f("peak_tflops", peak_tflops,
    "peak of the device in TFLOP/s, which mfu is a share of; 0 = the dense bf16 peak of a known GPU (then mfu is left "
    "out on a CPU, on other GPUs and for f32 weights)");
  f("tokenizer", tokenizer,
    "tokenizer folder or file, or .gguf file; empty = the model folder's, or a tokenizer stage's");
  f("model", model, "the model to start from");
  f("rollout", rollout, "the inference engine that samples");
  f("parallel", parallel, "the ranks that run the recipe together");
  f("tracker", tracker, "a process that receives the metrics, for example for Weights & Biases");
  f("eval", eval, "evaluation tasks, run before the first training stage, after each, and every eval_steps steps");
  f("stage", stage, "stages, in order");
  f.require("name", !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..",
            "name is the name of a folder: it may not be empty, have a /, or be . or ..");
  f.require("dtype", dtype == "auto" || dtype == "f32" || dtype == "bf16", "dtype must be auto, f32 or bf16");
  f.require("numerics", numerics == "exact" || numerics == "fast", "numerics must be exact or fast");
  f.require("peak_tflops", peak_tflops >= 0 && peak_tflops <= 1e9, "peak_tflops must be in [0, 1e9]");
  f.require("threads", threads >= 0 && threads <= 4096, "threads must be in [0, 4096]");
  f.require("stage", !stage.empty(), "a recipe needs at least one [[stage]]");
  for (size_t i = 0; i < stage.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      f.require("stage", stage[i].label() != stage[j].label(),
                concat("two stages are called '", stage[i].label(), "'; give one another name"));
}

std::string Recipe::model_source() const {
  if (is_known_shape(model.config)) return model.config;
  if (!model.config.empty()) return expand_path(model.config);
  return (source.empty() ? "" : source + ": ") + "[model]";
}

std::string Recipe::toml() const {
  Recipe copy = *this;
  return to_toml([&](Fields& f) { copy.fields(f); }, document.get());
}

Json Recipe::json() const {
  Recipe copy = *this;
  return to_json([&](Fields& f) { copy.fields(f); }, document.get());
}

Recipe read_recipe(Config config) {
  Recipe out = config.as<Recipe>();
  out.document = std::make_shared<const Config>(std::move(config));
  for (StageSpec& spec : out.stage) {
    spec.name = spec.label();
    spec.stage.update([&](Stage& stage) { stage.resolve(out.stage_settings()); });
  }
  return out;
}

Recipe read_again(const Recipe& recipe) {
  Recipe out = read_recipe(Config::from_text(recipe.toml(), recipe.source.empty() ? "recipe" : recipe.source));
  out.source = recipe.source;
  return out;
}

// Other kinds of files that a command line may name in place of a recipe.
static void refuse_other_files(const std::string& path) {
  HONE_CHECK(
      !std::filesystem::is_directory(path), path, ": is a folder; a recipe is a TOML file",
      std::filesystem::exists(std::filesystem::path(path) / "run.json") ? " (hone run --resume continues a run)" : "");
  for (const char* ending : {".json", ".jsonl", ".gz", ".safetensors", ".gguf"})
    HONE_CHECK(!path.ends_with(ending), path, ": a recipe is a TOML file, not ", ending);
}

Recipe read_recipe(const std::string& path, std::span<const std::string> overrides) {
  refuse_other_files(path);
  const std::string found = find_program_file(path);
  Recipe out = read_recipe(Config::from_file(found, overrides));
  out.source = found;
  return out;
}

}  // namespace hone
