#include "run/plan/dry_passes.h"

#include <algorithm>
#include <filesystem>

#include "core/io/file.h"
#include "model/io/model_folder.h"
#include "model/token_logprobs.h"

namespace hone {

int64_t held_bytes(Context& context) {
  return signed_bytes(context.device().used_bytes()) - signed_bytes(context.scratch().capacity_bytes());
}

int64_t uncounted_scratch(DeviceKind target, const ModelShape& shape, int64_t tokens, bool backward) {
  constexpr int64_t most_cpu_logits = int64_t{1} << 25, gpu_workspace = int64_t{64} << 20, per_lane = int64_t{1} << 18;
  const int64_t vocabulary = shape.vocab_size, rows_of_scores = tokens * shape.num_attention_heads * 4;
  if (target == DeviceKind::cpu) {
    const int64_t most_rows = std::max<int64_t>(8, most_cpu_logits / vocabulary / 8 * 8);
    const int64_t logits = std::min(tokens, most_rows) * vocabulary * 4;
    return std::max(logits, rows_of_scores + per_lane);
  }
  constexpr int64_t most_rows = 2048, most_gradient_bytes = int64_t{600} << 20, most_gpu_logits = int64_t{1} << 24;
  if (!backward) return target == DeviceKind::cuda ? 0 : 4 * most_gpu_logits;
  const int64_t attention = 3 * rows_of_scores * shape.head_dim + 2 * rows_of_scores;
  if (target == DeviceKind::cuda) return gpu_workspace + attention;
  const int64_t gradients = std::min(std::min(tokens, most_rows) * vocabulary * 2, most_gradient_bytes);
  return gpu_workspace + std::max(attention, gradients + 4 * most_gpu_logits);
}

int64_t generate_on(Context& context, Model& model, EngineConfig config, int64_t sequences, int64_t length) {
  constexpr int64_t most_new_tokens = 256;
  config.release_kv_blocks = !config.speculative.shares_kv_blocks();  // the layout that the engine has with it
  config.speculative = {};                                            // what its proposer holds is counted apart
  config.prefix_caching = false;
  const int64_t before = held_bytes(context), room = std::max<int64_t>(1, config.kv_cache_tokens / length);
  const int64_t count = std::clamp<int64_t>(sequences, 1, std::min(config.max_sequences, 16 * room));
  const int64_t prompt = std::clamp<int64_t>(config.max_batch_tokens / count + 1, 1, std::max<int64_t>(1, length - 1));
  const int64_t longest = std::clamp<int64_t>(length - prompt, 1, most_new_tokens);
  Engine engine(context, model, nullptr, config);
  std::vector<GenerationRequest> requests;
  for (int64_t i = 0; i < count; ++i) {
    GenerationRequest request;
    request.prompt.resize(static_cast<size_t>(prompt));
    request.id = static_cast<uint64_t>(i);
    request.sampling.max_tokens = 1 + i * longest / count;
    requests.push_back(std::move(request));
  }
  engine.generate(std::move(requests));
  return held_bytes(context) - before;
}

int64_t kv_cache_bytes(const EngineConfig& engine, const Model& model, DType dtype) {
  const KvLayout layout = engine.kv_layout(model.kv_groups());
  const int64_t blocks = engine.kv_cache_tokens / engine.kv_block_size * layout.num_tables();
  return signed_bytes(kv_storage_bytes(layout, dtype, engine.kv_block_size, blocks));
}

int64_t scoring_scratch(Context& like, Model& model, int64_t length, int64_t tokens) {
  Context context(like.device());
  context.plan_for(like.target());
  context.set_numerics(like.numerics());
  const int64_t batch_tokens = std::max(length, std::min(tokens, LogprobOptions().batch_tokens)),
                whole = std::max<int64_t>(1, batch_tokens / length);
  std::vector<std::vector<int32_t>> sequences(static_cast<size_t>(whole),
                                              std::vector<int32_t>(static_cast<size_t>(length)));
  if (const int64_t rest = batch_tokens - whole * length; rest > 1) sequences.emplace_back(static_cast<size_t>(rest));
  compute_logprobs(context, model, sequences, {.entropy = true, .hit = true});
  return signed_bytes(context.scratch().peak_bytes()) +
         uncounted_scratch(context.target(), model.shape(), batch_tokens, false);
}

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

int64_t measure_judges(Context& learner, const Recipe& recipe, const PlannedStage& planned, const Model& model) {
  StageSpec spec = recipe.stage[planned.index];
  std::vector<JudgeFolder> judges;
  find_judges(to_json([&](Fields& f) { spec.fields(f); }), judges);
  int64_t out = 0;
  for (const JudgeFolder& judge : judges)
    if (shares_device(judge, learner.target())) out += judge_bytes(learner, expand_path(judge.path), model);
  return out;
}

}  // namespace hone
