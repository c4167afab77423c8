#include "posttrain/offline.h"

#include <algorithm>
#include <iterator>

#include "core/base/log.h"
#include "data/first_rows.h"
#include "posttrain/reward_model.h"
#include "train/held_out.h"
#include "train/parallel/zero.h"
#include "train/teacher.h"

namespace hone {

void OfflineTraining::fields(Fields& f) {
  f("batch_size", batch_size_, concat(unit_, " of an optimizer step").c_str());
  objective_.fields(f, "objective", "what is optimized (hone list objectives)");
  require_data(f, objective_.kind(), *objective_, make_objective(own_objective_)->needs().data);
  f("precompute_ref_log_probs", precompute_ref_log_probs_,
    "true: the reference's log-probs of all rows are computed before training, and the reference is then freed; false: "
    "those of a row are computed when it is first needed. The bits are the same");
  sync_.fields(f, objective_->make({})->needs().has(columns::reference_logp));
  f.require("precompute_ref_log_probs", !precompute_ref_log_probs_ || !sync_.sync_ref_model,
            "precompute_ref_log_probs needs a reference that does not change: set it to false, or remove "
            "sync_ref_model");
  f("eval_files", eval_files_,
    "JSON Lines files of rows that are held out: their eval_loss is measured every eval_steps and at the end");
  f("eval_share", eval_share_, "share of the rows that is held out instead of eval_files; 0 = none");
  early_stop_.fields(f);
  loop_.fields(f);
  f.require("batch_size", batch_size_ > 0 && batch_size_ <= max_step_samples,
            concat("batch_size must be in [1, ", max_step_samples, "]"));
  f.require("eval_share", eval_share_ >= 0 && eval_share_ < 1, "eval_share must be in [0, 1)");
  f.require("eval_share", eval_share_ == 0 || eval_files_.empty(),
            "rows are held out by eval_files or by eval_share, not both: remove one of them");
  const bool measures = eval_share_ > 0 || !eval_files_.empty();
  f.require("early_stopping_patience", early_stop_.early_stopping_patience == 0 || (measures && loop_.eval_steps > 0),
            "early_stopping_patience needs rows that are held out (eval_files or eval_share) and eval_steps");
  f.require("load_best_model_at_end", !early_stop_.load_best_model_at_end || (measures && loop_.eval_steps > 0),
            "load_best_model_at_end needs rows that are held out (eval_files or eval_share) and eval_steps");
}

int64_t OfflineTraining::steps(std::span<const RowSource> rows) const {
  if (loop_.steps > 0) return loop_.steps;
  int64_t count = 0;
  for (const RowSource& source : rows) read_rows(source, [&](const Json&, const std::string&) { ++count; });
  return loop_.num_steps(static_cast<double>(count) / static_cast<double>(batch_size_));
}

std::vector<std::string> OfflineTraining::warnings() const {
  std::vector<std::string> out = loop_.warnings();
  std::ranges::copy(objective_->warnings({}), std::back_inserter(out));
  return out;
}

PlannedStep OfflineTraining::planned_step(int64_t max_length, int64_t samples_of_group) const {
  const std::shared_ptr<const Objective> objective = objective_->make({});
  return {.sequences = samples_of_group * batch_size_,
          .length = max_length,
          .objective = objective,
          .trainer = &loop_.trainer,
          .reference = objective->needs().has(columns::reference_logp) && !precompute_ref_log_probs_,
          .evaluates = loop_.eval_steps > 0};
}

static bool has_trained_token(const Sample& sample) {
  return std::ranges::any_of(sample.columns.find(columns::mask), [](float m) { return m != 0; });
}

std::vector<ShownSample> shown_samples(std::vector<Group> groups, std::vector<SampleTrace> traces,
                                       const SampleFormat& format, int64_t samples_of_group,
                                       const std::function<std::string(const Sample&, size_t i)>& part) {
  std::vector<ShownSample> out;
  auto trace = traces.begin();
  for (Group& group : groups) {
    const size_t first = out.size();
    std::string left_out;
    for (size_t i = 0; i < static_cast<size_t>(samples_of_group); ++i, ++trace) {
      Sample& sample = group.samples[i];
      ShownSample shown{.where = trace->where, .part = part(sample, i), .sample = {}, .roles = std::move(trace->roles)};
      shown.full_length = std::ssize(shown.roles);
      shown.roles.resize(sample.tokens.size(), TokenRole::format);
      if (format.too_long == "skip" && shown.full_length > format.max_length)
        left_out = concat("longer than max_length = ", format.max_length);
      else if (!has_trained_token(sample))
        left_out = "no token is trained on";
      shown.sample = std::move(sample);
      out.push_back(std::move(shown));
    }
    for (size_t i = first; i < out.size(); ++i) out[i].left_out = left_out;
  }
  return out;
}

namespace {

// For a reference that has changed.
void forget_reference_logp(std::span<Group> groups) {
  for (Group& group : groups)
    for (Sample& sample : group.samples) sample.columns.erase(columns::reference_logp);
}

std::vector<Sample*> samples_of(std::span<Group* const> groups) {
  std::vector<Sample*> out;
  for (Group* group : groups)
    for (Sample& sample : group->samples) out.push_back(&sample);
  return out;
}

int64_t tokens_of(const Group& group) {
  int64_t sum = 0;
  for (const Sample& sample : group.samples) sum += static_cast<int64_t>(sample.tokens.size());
  return sum;
}

// Adds rewards/margins of unpaired completions: the difference of the two means. Also of each source.
void add_margins(Metrics& metrics, std::span<const MixturePart> parts) {
  std::vector<std::string> ends{""};
  for (const MixturePart& part : parts) ends.push_back("/" + part.name);
  for (const std::string& end : ends) {
    const auto chosen = metrics.find("rewards/chosen" + end), rejected = metrics.find("rewards/rejected" + end);
    if (chosen != metrics.end() && rejected != metrics.end())
      metrics.emplace("rewards/margins" + end, chosen->second - rejected->second);
  }
}

// Writes the groups of the next step to `batch`. Takes `count` groups, or as many as fit into packed_tokens if it is
// not 0.
void next_batch(std::vector<Group>& groups, Mixture& order, int64_t count, int64_t packed_tokens,
                std::vector<Group*>& batch) {
  batch.clear();
  for (int64_t tokens = 0; packed_tokens > 0 || static_cast<int64_t>(batch.size()) < count;) {
    Mixture ahead = order;
    Group& next = groups[static_cast<size_t>(ahead.next())];
    tokens += tokens_of(next);
    if (packed_tokens > 0 && !batch.empty() && tokens > packed_tokens) return;
    batch.push_back(&next);
    order = ahead;
  }
}

}  // namespace

// The length of a packed step depends on the samples, so this makes all steps to count them.
int64_t OfflineTraining::steps_of_epochs(std::vector<Group>& groups, Mixture order, int64_t packed_tokens) const {
  if (packed_tokens == 0) return loop_.num_steps(static_cast<double>(groups.size()) / static_cast<double>(batch_size_));
  const double wanted = loop_.num_train_epochs * static_cast<double>(groups.size());
  std::vector<Group*> batch;
  int64_t steps = 0;
  for (; static_cast<double>(order.num_given()) < wanted; ++steps)
    next_batch(groups, order, batch_size_, packed_tokens, batch);
  return steps;
}

static void check_rows_of(const Problems& problems, const char* key, const RowSource& rows, const LoadGroups& load) {
  const size_t before = problems.size();
  each_first_row(rows, [&](const RowSource& one) { problems.attempt(key, [&] { load(one); }); });
  if (problems.size() == before) problems.attempt(key, [&] { check_all_rows(rows); });
}

void OfflineTraining::check_rows(const Problems& problems, const GroupSource& source) {
  check_rows_of(problems, source.rows.files.empty() ? "generator" : "files", source.rows, source.load);
}

void OfflineTraining::check_held(const Problems& problems, const LoadGroups& load_held) const {
  if (!eval_files_.empty()) check_rows_of(problems, "eval_files", {.files = eval_files_, .generator = {}}, load_held);
}

void OfflineTraining::run(StageContext& stage, std::span<const GroupSource> sources, const LoadGroups& load_held,
                          const Prepare& prepare, int64_t packed_tokens) const {
  const std::unique_ptr<Objective> made = objective_->make({});
  Objective& objective = *made;
  const Needs needs = objective.needs();
  auto* const taught = dynamic_cast<TeacherObjective*>(made.get());
  if (taught) taught->load_teacher(stage);
  SourceGroups loaded = load_sources(sources, eval_share_, stage.data_seed);
  std::vector<Group>&train = loaded.train, &held = loaded.held;
  if (!eval_files_.empty()) held = load_held({.files = eval_files_, .generator = {}});
  log::info(stage.name, ": ", train.size(), " ", unit_, held.empty() ? "" : concat(", ", held.size(), " held out"));
  if (loaded.parts.size() > 1)
    for (const MixturePart& part : loaded.parts) log::info(stage.name, ": source ", part.name, ": ", part.count);

  std::unique_ptr<Reference> reference;
  if (needs.has(columns::reference_logp)) {
    reference = std::make_unique<Reference>(stage, loop_.trainer.temperature);
    if (precompute_ref_log_probs_) {
      reference->score_into(train);
      reference->score_into(held);
      reference.reset();
    }
  }
  TrainerConfig config = loop_.trainer;
  config.noise_seed = stage.seed;
  config.micro_batch_multiple = stage.micro_batch_multiple;
  const std::unique_ptr<StepExchange> exchange = make_exchange(stage.ranks, stage.zero);
  Trainer trainer(stage.context, *stage.model, config, exchange.get());
  const auto ready = [&](std::span<Group* const> batch, MetricSums& metrics) {
    const std::vector<Sample*> samples = samples_of(batch);
    if (reference) reference->score_missing(samples);
    return prepare ? prepare(batch, objective, metrics) : std::vector<const Sample*>(samples.begin(), samples.end());
  };

  Mixture order(loaded.parts, stage.data_seed);
  std::vector<Group*> batch;
  const auto step = [&](int64_t index, double learning_rate) {
    const Rollback undo_order(order), undo_objective(objective);
    next_batch(train, order, batch_size_, packed_tokens, batch);
    MetricSums prepared;
    StepReport report = trainer.step(ready(batch, prepared), objective, learning_rate);
    if (reference && sync_.due(index + 1)) {
      reference->move_toward(*stage.model, sync_.ref_model_mixup_alpha);
      forget_reference_logp(train);
      forget_reference_logp(held);
    }
    report.metrics.merge(prepared.means());
    name_sources(report.metrics, loaded.parts);
    add_margins(report.metrics, loaded.parts);
    report.metrics.merge(order.metrics());
    report.metrics["epoch"] = static_cast<double>(order.num_given()) / static_cast<double>(train.size());
    return report;
  };
  HeldOut held_out{.measure = {}, .early_stop = early_stop_};
  std::vector<Group*> all_held;
  for (Group& group : held) all_held.push_back(&group);
  if (!held.empty())
    held_out.measure = [&] {
      MetricSums prepared;
      if (taught) taught->write_divergence(stage.context, *stage.model, samples_of(all_held));
      Metrics measured = measure_loss(stage.context, *stage.model, trainer, loop_.trainer.temperature,
                                      ready(all_held, prepared), objective, stage.ranks);
      measured.merge(prepared.means());
      name_sources(measured, loaded.parts);
      add_margins(measured, loaded.parts);
      return measured;
    };
  const auto save_model = [&](const std::filesystem::path& folder) {
    save_model_folder(stage, folder, needs.critic ? trainer.value_head() : std::vector<float>());
    if (needs.critic && !stage.model->lora()) write_classifier_config(folder, *stage.tokenizer);
  };
  std::map<std::string, Stateful*> sections{{"loader", &order}, {"objective", &objective}};
  if (sync_.sync_ref_model) sections["reference"] = reference.get();
  LoopConfig loop = loop_;
  if (loop.steps == 0) loop.steps = steps_of_epochs(train, order, packed_tokens);
  train_loop(stage, loop, trainer, sections, step, held_out, save_model);
}

}  // namespace hone
