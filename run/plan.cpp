#include "run/plan.h"

#include <algorithm>

#include "core/base/format.h"
#include "core/config/byte_size.h"
#include "model/flops.h"
#include "run/stage_memory.h"
#include "run/start.h"
#include "train/stage.h"

namespace hone {
namespace {

// The share of the machine's measured FLOP/s that a training step reaches. Large GEMMs reach more, norms and attention
// less.
constexpr double expected_mfu = 0.4;

// Plans a stage by dry runs on the meta device, which take the memory of any other device.
Json plan_stage(const Recipe& recipe, const PlannedStage& planned) {
  const StageSpec& spec = recipe.stage[planned.index];
  const StageMemory memory = measure_stage_memory(recipe, spec, planned.step, planned.adapted);
  const double per_token = memory.flops.train_flops_per_token;
  const int64_t tokens = planned.step.updates * planned.step.sequences * planned.length, steps = spec.stage->steps();
  return JsonObject{{"name", spec.name},
                    {"kind", spec.kind()},
                    {"steps", steps},
                    {"tokens_per_step", tokens},
                    {"train_flops_per_token", per_token},
                    {"flops", per_token * static_cast<double>(tokens) * static_cast<double>(steps)},
                    {"trained_params", memory.flops.trained_params},
                    {"memory", memory.bytes}};
}

std::string time_text(double seconds) {
  if (seconds < 120) return format_text("%.0f s", seconds);
  return seconds < 7200 ? format_text("%.0f min", seconds / 60) : format_text("%.1f h", seconds / 3600);
}

}  // namespace

void add_times(Json& plan, double flops_per_second) {
  const double rate = expected_mfu * flops_per_second;
  plan.set("flops_per_second", rate);
  JsonArray stages = plan.at("stages").as_array();
  for (Json& stage : stages) stage.set("seconds", stage.at("flops").as_double() / rate);
  plan.set("stages", std::move(stages));
}

Json plan_recipe(const Recipe& recipe) {
  const std::unique_ptr<Model> model = start_model(recipe);
  const ModelFlops plan = count_flops(*model, model->shape().max_positions);
  JsonArray stages;
  for (const PlannedStage& planned : planned_stages(recipe)) stages.push_back(plan_stage(recipe, planned));
  return JsonObject{{"params", plan.params},
                    {"embedding_params", plan.embedding_params},
                    {"forward_flops_per_token", plan.forward_flops_per_token},
                    {"stages", stages}};
}

std::string plan_text(const Json& plan) {
  std::string out = format_text("%lld parameters (%lld of them embeddings), %.3g FLOPs a token forward\n",
                                static_cast<long long>(plan.at("params").as_int()),
                                static_cast<long long>(plan.at("embedding_params").as_int()),
                                plan.at("forward_flops_per_token").as_double());
  for (const Json& stage : plan.at("stages").as_array()) {
    const auto tokens = static_cast<long long>(stage.at("tokens_per_step").as_int());
    if (const int64_t steps = stage.at("steps").as_int(); steps > 0)
      out +=
          format_text("%s: %lld steps of at most %lld tokens, %.3g FLOPs in all", stage.at("name").as_string().c_str(),
                      static_cast<long long>(steps), tokens, stage.at("flops").as_double());
    else
      out += format_text("%s: steps of at most %lld tokens, as many as num_train_epochs makes of the corpus",
                         stage.at("name").as_string().c_str(), tokens);
    if (const int64_t trained = stage.at("trained_params").as_int(); trained != plan.at("params").as_int())
      out += format_text(", %lld parameters trained", static_cast<long long>(trained));
    if (const Json* seconds = stage.find("seconds")) out += ", about " + time_text(seconds->as_double());
    out += "; memory";
    for (const auto& [name, bytes] : stage.at("memory").as_object())
      if (bytes.as_int() > 0) out += " " + name + " " + byte_size_text(bytes.as_int()) + ",";
    out.back() = '\n';
  }
  if (const Json* rate = plan.find("flops_per_second"))
    out += format_text(
        "Times are estimates for updates of full length at %.3g FLOP/s, %.0f%% of this machine's measured arithmetic; "
        "sampling and evaluation are "
        "not counted.\n",
        rate->as_double(), 100 * expected_mfu);
  return out;
}

}  // namespace hone
