#include "run/plan/stage_memory.h"

#include <algorithm>

#include "core/io/file.h"
#include "model/io/model_folder.h"
#include "model/io/param_slices.h"
#include "model/quantized_model.h"
#include "model/token_logprobs.h"
#include "rollout/speculative/mtp_cache.h"
#include "run/plan/dry_passes.h"
#include "run/plan/teacher_memory.h"

namespace hone {
namespace {

// The samples of the largest micro-batch. If their lengths vary, it may hold as many tokens as the settings allow: as
// many of the longest samples as it holds, and shorter ones that fill it.
std::vector<Sample> largest_micro_batch(const PlannedStage& planned, const RankLayout& layout, Model& model) {
  const PlannedStep& step = planned.step;
  const int64_t length = planned.length, unit = step.objective->needs().unit == LossUnit::pair ? 2 : 1;
  const int64_t units = std::max<int64_t>(1, step.sequences / unit);
  int64_t budget = step.trainer->micro_batch_tokens;
  const Sample longest = dry_sample(*step.objective, length);
  const int64_t count = plan_longest(planned, layout, model).most_samples;
  if (step.equal_lengths) return std::vector<Sample>(static_cast<size_t>(count), longest);
  // Ranks share the micro-batches evenly, so theirs may be smaller. The trainer reserves up to a quarter more than a
  // step needs (MemoryPlan).
  if (layout.micro_batch_multiple > 1 && units * unit * length <= layout.micro_batch_multiple * budget)
    budget = std::min(budget, count * length * 5 / 4);
  const int64_t whole = std::clamp<int64_t>(budget / (unit * length), 1, units);
  std::vector<Sample> out(static_cast<size_t>(whole * unit), longest);
  const int64_t rest = budget / unit - whole * length;
  if (whole < units && rest > 1) out.insert(out.end(), static_cast<size_t>(unit), dry_sample(*step.objective, rest));
  return out;
}

struct SamplerBytes {
  int64_t kv_cache = 0, draft = 0, quantized = 0;
  int64_t draft_weights = 0;  // in `draft`
  int64_t buffers = 0;        // of decode passes
  int64_t scratch = 0;        // peak, if the engine has a context of its own
  int64_t kv_bytes_per_token = 0, kv_window_tokens = 0;
  // What Engine::rest() frees.
  int64_t resting_bytes() const { return kv_cache + draft - draft_weights + quantized + buffers; }
};

// The completions that a rank samples in a step.
int64_t sampled_on(const PlannedStep& step, const RankLayout& layout, int rank) {
  const int64_t all = step.sampled > 0 ? step.sampled : step.sequences * step.updates, prompts = step.dealt_prompts;
  if (layout.ranks == 1) return all;
  if (prompts == 0) return rank == 0 ? all : 0;
  return all / prompts * ((prompts - rank + layout.ranks - 1) / layout.ranks);
}

// An engine on the learner's device. sequences: that it samples in a step. own_context: it generates while the learner
// trains.
SamplerBytes measure_sampler(Context& learner, Model& model, const RolloutConfig& rollout, int64_t sequences,
                             int64_t length, bool own_context) {
  SamplerBytes out;
  Context own(learner.device());
  own.plan_for(learner.target());
  own.set_numerics(learner.numerics());
  Context& context = own_context ? own : learner;
  const KvLayout layout = rollout.kv_layout(model.kv_groups());
  out.kv_cache = kv_cache_bytes(rollout, model, rollout.kv_dtype(model.dtype()));
  out.kv_bytes_per_token = layout.bytes_per_token(rollout.kv_dtype(model.dtype()));
  out.kv_window_tokens = layout.max_window_tokens(rollout.kv_block_size);
  if (rollout.quantization != "none")
    out.quantized = signed_bytes(QuantizedModel(context, model, quant_formats().at(rollout.quantization)).bytes());
  const int64_t held = generate_on(context, model, rollout, sequences, length);
  out.buffers = std::max<int64_t>(0, held - out.kv_cache - out.quantized);
  if (own_context) out.scratch = signed_bytes(context.scratch().capacity_bytes());
  if (rollout.speculative.method == "mtp") out.draft = signed_bytes(MtpCache::bytes(model, rollout));
  if (const std::string& folder = rollout.speculative.model; !folder.empty()) {
    const std::unique_ptr<Model> draft = read_model_folder(expand_path(folder));
    draft->allocate(context, model.dtype(), false);
    out.draft_weights = signed_bytes(draft->flat_values().bytes());
    out.draft = out.draft_weights + kv_cache_bytes(rollout, *draft, draft->dtype());
  }
  return out;
}

// Weights that a stage holds besides those that it trains.
struct WeightCopies {
  int64_t reference = 0, versions = 0;
};

WeightCopies measure_copies(Model& model, const RolloutConfig& rollout, const PlannedStep& step, bool adapted) {
  const int64_t weights = signed_bytes(model.flat_values().bytes());
  WeightCopies out{.reference = step.reference ? weights : 0};
  if (model.lora() && step.reference) {
    out.reference = 0;
    if (adapted)
      for (const Param* param : model.adapter_params()) out.reference += signed_bytes(param->value.bytes());
  }
  // For workers: the version that they load, and the next one.
  const int64_t for_workers = step.rollout && !rollout.pool.workers.empty() ? 2 : 0;
  out.versions = (step.max_versions_in_flight + for_workers) * signed_bytes(model.trainable_values().bytes());
  if (step.max_versions_in_flight > 0 && step.rollout && rollout.shares_learner_device()) out.versions += weights;
  return out;
}

// The largest memory that a tensor takes on its way to a file.
int64_t staging_bytes(Model& model) {
  int64_t out = 0;
  for (const Param* param : model.params()) {
    const int64_t row = param->shape.size() > 1 ? param->shape.back() : 1;
    out = std::max(out, std::min(param->value.size(), std::max(row, max_staged_elements)));
  }
  return std::max<int64_t>(int64_t{1} << 20, out * signed_bytes(size_of(model.dtype())));
}

struct TrainerBytes {
  int64_t optimizer = 0, activations = 0, critic = 0;
  GradientBytes gradients;
  int64_t scratch = 0;  // of the learner's context, with what sampling takes of it
  int64_t grown = 0;    // scratch memory that the first sampling leaves
};

// True if the stage holds rows out, which are scored between the steps.
bool holds_rows_out(const StageSpec& spec) {
  StageSpec copy = spec;
  const Json keys = to_json([&](Fields& f) { copy.fields(f); });
  const Json *share = keys.find("eval_share"), *files = keys.find("eval_files");
  return (share && share->as_double("eval_share") > 0) || (files && !files->as_array("eval_files").empty());
}

// scores_later: held-out data is scored between the steps. takes_turns: the trainer frees its activations while an
// engine samples.
TrainerBytes measure_training(DryRank& dry, const PlannedStage& planned, const RankLayout& layout, bool scores_later,
                              bool takes_turns) {
  Context& context = dry.context();
  Model& model = dry.model();
  const ModelShape& shape = model.shape();
  const PlannedStep& step = planned.step;
  const int64_t grown = signed_bytes(context.scratch().capacity_bytes());  // blocks that sampling has left
  const std::vector<Sample> samples = largest_micro_batch(planned, layout, model);
  int64_t tokens = 0;
  for (const Sample& sample : samples) tokens += std::ssize(sample.tokens);
  // Every rank reserves for the largest micro-batch. If a rank has a second one, that takes the staging memory of
  // gradients (train/gradient_sum.h).
  const int64_t rounds = std::ssize(samples) * layout.ranks < step.sequences ? 2 : 1;
  std::vector<const Sample*> batch;
  for (int64_t i = 0; i < rounds * layout.ranks; ++i)
    for (const Sample& sample : samples) batch.push_back(&sample);
  TrainerConfig config = *step.trainer;
  config.micro_batch_tokens = tokens;
  Trainer trainer(context, model, config, dry.exchange());
  trainer.step(batch, *step.objective, 0);
  const TrainerMemory memory = trainer.memory();
  // A rank scores its part of a step's samples, and of the rows that are held out, whose number is not known.
  const int64_t of_rank = (step.sequences * step.updates + layout.ranks - 1) / layout.ranks,
                scored_tokens = scores_later ? LogprobOptions().batch_tokens : of_rank * planned.length;
  const int64_t peak = signed_bytes(trainer.peak().scratch) + uncounted_scratch(context.target(), shape, tokens, true),
                scored = scoring_scratch(context, model, planned.length, scored_tokens);
  int64_t reserved = peak;
  const Needs needs = step.objective->needs();
  const bool scores_first =
      step.scores_samples || context.numerics() == Numerics::fast || needs.critic || needs.has(columns::reference_logp);
  if (scores_first) reserved = std::max(peak, scored);          // before the first step reserves its blocks
  if (scores_later && scored > peak) reserved = peak + scored;  // its blocks are added to the reserved one
  const int64_t columns = step.objective->needs().loss_linear_in_logp ? 8 * step.sequences * planned.length : 0;
  TrainerBytes out{.optimizer = memory.optimizer,
                   .activations = memory.activations + columns,
                   .critic = memory.critic,
                   .gradients = memory.gradients};
  // Sampling comes before the first step's activations.
  out.scratch = takes_turns ? reserved : std::max(reserved, grown - out.activations);
  out.grown = grown;
  return out;
}

// What the engine of evaluation tasks holds. It exists only while they run.
int64_t measure_evaluation(Context& context, Model& model, const Recipe& recipe, int64_t length) {
  if (recipe.eval.empty()) return 0;
  const EngineConfig engine = recipe.rollout.as_exact();
  return generate_on(context, model, engine, engine.max_sequences, length);
}

}  // namespace

StageMemory measure_stage_memory(const Recipe& recipe, const PlannedStage& planned, const RankLayout& layout,
                                 int rank) {
  const PlannedStep& step = planned.step;
  DryRank dry(recipe, planned, layout, rank);
  Context& context = dry.context();
  Model* const model = &dry.model();
  const int64_t length = planned.length;
  const int64_t weights = signed_bytes(model->flat_values().bytes()),
                gradients = signed_bytes(model->flat_grads().bytes()),
                tables = held_bytes(context) - weights - gradients;
  // In the order of a run: evaluation, sampling, training.
  const int64_t evaluation = measure_evaluation(context, *model, recipe, length);
  SamplerBytes sampler;
  const int64_t sampled = sampled_on(step, layout, rank);
  if (step.rollout && sampled > 0 && recipe.rollout.shares_learner_device())
    sampler = measure_sampler(context, *model, recipe.rollout, sampled, length, step.max_versions_in_flight > 0);
  const bool takes_turns = step.rollout && recipe.rollout.takes_turns(step.max_versions_in_flight == 0);
  const TrainerBytes training =
      measure_training(dry, planned, layout, holds_rows_out(recipe.stage[planned.index]), takes_turns);
  WeightCopies copies = measure_copies(*model, recipe.rollout, step, planned.adapted);
  const TeacherMemory teacher =
      measure_teacher(dry, planned, layout, rank, largest_micro_batch(planned, layout, *model));
  // A pass of the teacher that does not fit the reserved memory takes more.
  const int64_t scratch = training.scratch + (teacher.scratch > training.scratch ? teacher.scratch : 0);
  // Under ZeRO-3 a copy is divided, as the model is. The model is whole beside its shards when it is saved, samples or
  // is evaluated.
  const int64_t shards = training.gradients.values;
  if (shards > 0 && !model->lora() && step.reference) copies.reference = shards;
  StageMemory out{.bytes = JsonObject{{"weights", weights + shards},
                                      {"gradients", gradients + training.gradients.sum},
                                      {"gradient_buffers", training.gradients.buffers},
                                      {"optimizer", training.optimizer},
                                      {"activations", training.activations},
                                      {"scratch", scratch + sampler.scratch},
                                      {"critic", training.critic},
                                      {"reference", copies.reference},
                                      {"teacher", teacher.weights},
                                      {"judges", measure_judges(context, recipe, planned, *model)},
                                      {"kv_cache", sampler.kv_cache},
                                      {"draft_model", sampler.draft},
                                      {"rollout_weights", sampler.quantized},
                                      {"weight_copies", copies.versions},
                                      {"engine_buffers", sampler.buffers},
                                      {"other", tables + staging_bytes(*model)}},
                  .flops = count_flops(*model, length),
                  .kv_bytes_per_token = sampler.kv_bytes_per_token,
                  .kv_window_tokens = sampler.kv_window_tokens};
  int64_t total = 0;
  for (const auto& [name, value] : out.bytes.as_object()) total += value.as_int();
  const int64_t alone = weights + gradients + evaluation;  // before and after training
  int64_t overlap = 0;
  if (takes_turns) {
    // The trainer keeps its activations while tasks are evaluated; the engine rests by then.
    const int64_t training_turn = training.activations + (step.evaluates ? evaluation : 0),
                  sampling_turn = sampler.resting_bytes() + std::max<int64_t>(0, training.grown - scratch);
    overlap = training_turn + sampler.resting_bytes() - std::max(training_turn, sampling_turn);
  }
  const int64_t beside = step.evaluates ? evaluation : std::max<int64_t>(0, alone - (total - overlap));
  out.bytes.set("evaluation", beside);
  out.bytes.set("overlap", -overlap);
  out.bytes.set("total", total + beside - overlap);
  return out;
}

StageMemory measure_largest_rank(const Recipe& recipe, const PlannedStage& planned, const RankLayout& layout) {
  constexpr int most_measured = 8;  // of many ranks the first ones and the last: shards differ by a piece of a unit
  StageMemory out = measure_stage_memory(recipe, planned, layout, layout.ranks - 1);
  for (int rank = 0; rank < std::min(layout.ranks - 1, most_measured); ++rank) {
    StageMemory one = measure_stage_memory(recipe, planned, layout, rank);
    if (one.bytes.at("total").as_int() > out.bytes.at("total").as_int()) out = std::move(one);
  }
  return out;
}

}  // namespace hone
