#include "posttrain/plan_recipe.h"

#include <cstdio>

#include "core/file.h"
#include "core/json.h"
#include "core/model/plan.h"
#include "posttrain/stage.h"
#include "pretrain/trainer.h"

namespace hone {
namespace {

std::unique_ptr<Model> shape_only(const Recipe& recipe) {
  if (!recipe.model.path.empty()) {
    const std::string path = (std::filesystem::path(expand_path(recipe.model.path)) / "config.json").string();
    return make_model(parse_json(read_file(path), path), path);
  }
  int64_t vocabulary = recipe.tokenizer.empty() ? 0 : Tokenizer::load(expand_path(recipe.tokenizer)).vocab_size();
  for (const StageSpec& spec : recipe.stage)
    if (const int64_t made = spec.stage->vocab_size()) vocabulary = made;
  return make_model(recipe.model.make_config(vocabulary), "[model]");
}

// A sample with every column an objective may read; the numbers do not matter on the meta device.
Sample widest_sample(int64_t length) {
  const size_t n = static_cast<size_t>(length);
  Sample out;
  out.tokens.assign(n, 0);
  out.mask.assign(n, 1.0f);
  out.mask[0] = 0;
  out.behavior_logp = out.old_logp = out.reference_logp = out.advantage = out.value = out.returns = std::vector<float>(n, 0.0f);
  return out;
}

// One step on the meta device: what it takes there is what it takes anywhere.
Json plan_stage(const Recipe& recipe, const StageSpec& spec, const ModelShape& shape) {
  const StepShape step = spec.stage->step_shape(shape);
  const std::unique_ptr<Device> device = devices().at("meta")(0);
  Context context(*device);
  const std::unique_ptr<Model> model = shape_only(recipe);
  model->allocate(context, DType::f32, true);
  Trainer trainer(context, *model, *step.trainer);
  const int64_t length = std::min({step.length, shape.max_positions > 0 ? shape.max_positions : step.length, step.trainer->micro_batch_tokens});
  const Sample sample = widest_sample(length);
  const std::vector<const Sample*> batch(static_cast<size_t>(step.sequences), &sample);
  trainer.step(batch, *step.objective, 0);
  int64_t kv_bytes = 0;
  if (step.rollout) {
    const int64_t tokens = recipe.rollout.kv_cache_tokens / recipe.rollout.kv_block_size * recipe.rollout.kv_block_size;
    kv_bytes = 2 * shape.num_blocks * tokens * shape.num_kv_heads * shape.head_dim * static_cast<int64_t>(size_of(DType::f32));
  }
  const ModelPlan plan = plan_model(*model, length);
  const int64_t weights = static_cast<int64_t>(model->flat_values().bytes()), gradients = static_cast<int64_t>(model->flat_grads().bytes());
  const TrainerMemory memory = trainer.memory();
  const int64_t scratch = static_cast<int64_t>(context.scratch().capacity_bytes()), tokens = step.sequences * length;
  Json bytes = JsonObject{{"weights", weights},         {"gradients", gradients}, {"optimizer", memory.optimizer}, {"activations", memory.activations}, {"scratch", scratch},
                          {"reference", step.reference ? weights : 0}, {"kv_cache", kv_bytes}};
  int64_t total = 0;
  for (const auto& [name, value] : bytes.as_object()) total += value.as_int();
  bytes.set("total", total);
  return JsonObject{{"name", spec.name},
                    {"kind", spec.kind},
                    {"steps", spec.stage->steps()},
                    {"tokens_per_step", tokens},
                    {"train_flops_per_token", plan.train_flops_per_token},
                    {"flops", plan.train_flops_per_token * static_cast<double>(tokens * spec.stage->steps())},
                    {"memory", bytes}};
}

std::string size_text(double bytes) {
  char text[32];
  if (bytes >= 1e9) std::snprintf(text, sizeof text, "%.2f GB", bytes * 1e-9);
  else std::snprintf(text, sizeof text, "%.1f MB", bytes * 1e-6);
  return text;
}

}  // namespace

void check_recipe(const Recipe& recipe) {
  for (const StageSpec& spec : recipe.stage) spec.stage->check(recipe);
  for (const EvalEntry& entry : recipe.eval) load_eval_task(entry.task);
}

Json plan_recipe(const Recipe& recipe) {
  const std::unique_ptr<Model> model = shape_only(recipe);
  const ModelPlan plan = plan_model(*model, model->shape().max_positions);
  JsonArray stages;
  for (const StageSpec& spec : recipe.stage)
    if (spec.stage->trains()) stages.push_back(plan_stage(recipe, spec, model->shape()));
  return JsonObject{{"params", plan.params}, {"embedding_params", plan.embedding_params}, {"forward_flops_per_token", plan.forward_flops_per_token}, {"stages", stages}};
}

std::string plan_text(const Json& plan) {
  char line[256];
  std::snprintf(line, sizeof line, "%lld parameters (%lld of them embeddings), %.3g FLOPs a token forward\n", static_cast<long long>(plan.at("params").as_int()),
                static_cast<long long>(plan.at("embedding_params").as_int()), plan.at("forward_flops_per_token").as_double());
  std::string out = line;
  for (const Json& stage : plan.at("stages").as_array()) {
    std::snprintf(line, sizeof line, "%s: %lld steps of at most %lld tokens, %.3g FLOPs in all; memory", stage.at("name").as_string().c_str(), static_cast<long long>(stage.at("steps").as_int()),
                  static_cast<long long>(stage.at("tokens_per_step").as_int()), stage.at("flops").as_double());
    out += line;
    for (const auto& [name, bytes] : stage.at("memory").as_object())
      if (bytes.as_int() > 0) out += " " + name + " " + size_text(bytes.as_double()) + ",";
    out.back() = '\n';
  }
  return out;
}

}  // namespace hone
