#include "run/frozen_models.h"

#include <algorithm>
#include <filesystem>

#include "core/io/file.h"
#include "model/io/model_folder.h"
#include "run/dry_passes.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

std::string text_of(const Json& table, const char* key) {
  const Json* value = table.find(key);
  return value && value->is_string() ? value->as_string() : "";
}

// A judge of a folder, as the keys of a stage say it.
struct JudgeFolder {
  std::string path, device;
};

// Adds the judges of every reward among the keys, however deep.
void find_judges(const Json& keys, std::vector<JudgeFolder>& out) {
  if (keys.is_array())
    for (const Json& item : keys.as_array()) find_judges(item, out);
  if (!keys.is_object()) return;
  if (const std::string path = text_of(keys, "path"); text_of(keys, "kind") == "judge" && !path.empty())
    out.push_back({path, text_of(keys, "device")});
  for (const auto& [name, value] : keys.as_object()) find_judges(value, out);
}

// A model of the folder on the learner's device; `like`'s shape if there is no folder yet.
std::unique_ptr<Model> dry_model(Context& context, const fs::path& folder, const Model& like, DType dtype) {
  std::unique_ptr<Model> out = fs::exists(folder) ? read_model_folder(folder) : make_model(like.config(), "model");
  out->allocate(context, dtype, false);
  return out;
}

int64_t teacher_bytes(Context& learner, const fs::path& folder, const PlannedStage& planned, const Model& model) {
  const std::unique_ptr<Model> teacher = dry_model(learner, folder, model, model.dtype());
  return signed_bytes(teacher->flat_values().bytes()) +
         scoring_scratch(learner, *teacher, planned.length, planned.step.trainer->micro_batch_tokens);
}

// posttrain/judge_folder.cpp: an engine with default settings in a context of its own. The length of its questions is
// not known.
int64_t judge_bytes(Context& learner, const fs::path& folder, const Model& model) {
  constexpr int64_t question_tokens = 2048;
  Context context(learner.device());
  context.plan_for(learner.target());
  const std::unique_ptr<Model> judge = dry_model(context, folder, model, model_dtype("auto", learner.target()));
  const EngineConfig engine;
  const int64_t held = generate_on(context, *judge, engine, engine.max_sequences,
                                   std::min(question_tokens, judge->shape().max_positions));
  return signed_bytes(judge->flat_values().bytes()) + held + signed_bytes(context.scratch().capacity_bytes());
}

// True if a judge of this device is beside the learner. target: the learner's; meta stands for a GPU.
bool shares_device(const JudgeFolder& judge, DeviceKind target) {
  const std::string name = judge.device.substr(0, judge.device.find(':'));
  if (name.empty() || name == "auto") return true;
  return name == name_of(target) || (target == DeviceKind::meta && name == "cuda");
}

}  // namespace

FrozenModelBytes measure_frozen_models(Context& learner, const Recipe& recipe, const PlannedStage& planned,
                                       Model& model) {
  StageSpec spec = recipe.stage[planned.index];
  const Json keys = to_json([&](Fields& f) { spec.fields(f); });
  FrozenModelBytes out;
  const std::string teacher = text_of(keys, "teacher");
  if (!teacher.empty())
    out.teacher = teacher_bytes(learner, expand_path(teacher), planned, model);
  else if (!text_of(keys, "teacher_context").empty())  // the model as the stage began
    out.teacher = teacher_bytes(learner, "", planned, model);
  std::vector<JudgeFolder> judges;
  find_judges(keys, judges);
  for (const JudgeFolder& judge : judges)
    if (shares_device(judge, learner.target())) out.judges += judge_bytes(learner, expand_path(judge.path), model);
  return out;
}

}  // namespace hone
