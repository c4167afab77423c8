#include "run/recipe/check_optimizer.h"

#include "core/config/config.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "run/recipe/start.h"
#include "train/trainer.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

const TrainerConfig* trainer_of(const Stage& stage, Model& model) {
  return stage.trains() ? stage.planned_step(model.shape(), nullptr).trainer : nullptr;
}

// The stage that hands its model on to stage `index`; null if that starts from the recipe's model.
const StageSpec* stage_before(const Recipe& recipe, size_t index) {
  for (size_t i = index; i-- > 0;)
    if (recipe.stage[i].stage->trains() && recipe.stage[i].stage->hands_model_on()) return &recipe.stage[i];
  return nullptr;
}

std::string other_kind(const std::string& of, const std::string& before, const std::string& now) {
  return concat("optimizer_from = previous: the optimizer of ", of, " is ", before, ", and this stage's is ", now,
                ": use the same one, or remove optimizer_from");
}

// The key `moments` of an optimizer; empty if it has none.
std::string moments_of(const TrainerConfig& trainer) {
  Choice<OptimizerSettings> optimizer = trainer.optimizer;
  const Json settings = to_json([&](Fields& f) { optimizer.fields(f, "optimizer", ""); });
  const Json* moments = settings.find("moments");
  return moments ? moments->as_string("moments") : "";
}

// The state of a checkpoint that the recipe's model comes from.
void check_checkpoint(const std::string& path, const std::string& kind, const Problems& problems) {
  HONE_CHECK(!path.empty(), "optimizer_from = previous: no stage before this one trains, and the recipe has no ",
             "model.path: there is no optimizer to go on with");
  const fs::path state = fs::path(expand_path(path)) / "trainer" / "trainer.json";
  HONE_CHECK(fs::exists(state), "optimizer_from = previous: model.path has no state of an optimizer (", state.string(),
             " is missing): it must be a checkpoint of hone, runs/NAME/checkpoints/STAGE/step-N");
  const Json values = parse_json(read_file(state), state.string());
  const Json* saved = values.is_object() ? values.find("optimizer") : nullptr;  // older checkpoints lack it
  if (saved && saved->as_string(state.string()) != kind)
    problems.add("optimizer_from", other_kind(path, saved->as_string(), kind));
}

void check_state(const Recipe& recipe, size_t index, Model& model, const TrainerConfig& trainer,
                 const Problems& problems) {
  const StageSpec* before = stage_before(recipe, index);
  if (!before) return check_checkpoint(recipe.model.path, trainer.optimizer.kind(), problems);
  const TrainerConfig* earlier = trainer_of(*before->stage, model);
  const Stage& stage = *recipe.stage[index].stage;
  if (earlier && earlier->optimizer.kind() != trainer.optimizer.kind())
    problems.add("optimizer_from",
                 other_kind("stage " + before->name, earlier->optimizer.kind(), trainer.optimizer.kind()));
  else if (earlier && moments_of(*earlier) != moments_of(trainer))
    problems.add("moments",
                 concat("optimizer_from = previous: the moments of stage ", before->name, " are ", moments_of(*earlier),
                        ", and this stage's are ", moments_of(trainer), ": use the same, or remove optimizer_from"));
  if (start_lora(recipe).r > 0 && before->stage->trains_adapters() != stage.trains_adapters())
    problems.add("optimizer_from", concat("optimizer_from = previous: stage ", before->name, " trains ",
                                          before->stage->trains_adapters() ? "adapters" : "weights",
                                          ", and this stage trains the others; remove optimizer_from"));
}

}  // namespace

void check_optimizers(const Recipe& recipe, Model* model, const Problems& problems, int64_t stages_done) {
  if (!model) return;
  const LoraConfig lora = start_lora(recipe);
  for (auto i = static_cast<size_t>(stages_done); i < recipe.stage.size(); ++i) {
    const StageSpec& spec = recipe.stage[i];
    const Problems own = problems.table(concat("stage[", i, "]"), concat("stage ", spec.name, ": "));
    const TrainerConfig* trainer = nullptr;
    try {
      trainer = trainer_of(*spec.stage, *model);
    } catch (const Error&) {  // the stage's own check says it
      continue;
    }
    if (!trainer) continue;
    if (trainer->optimizer_from == "previous")
      own.attempt("optimizer_from", [&] { check_state(recipe, i, *model, *trainer, own); });
    if (trainer->groups.empty()) continue;
    own.attempt("groups", [&] {
      std::unique_ptr<Model> adapted = model->same_shape();
      if (lora.r > 0 && spec.stage->trains_adapters() && !adapted->lora()) adapted->add_lora(lora);
      const std::vector<Param*> params = adapted->params();
      check_groups(trainer->groups, trained_names(params), own, "groups");
    });
  }
}

}  // namespace hone
