#include "posttrain/reference.h"

#include <algorithm>

#include "kernels/elementwise/blend.h"
#include "model/lora.h"
#include "train/optim/state_parts.h"
#include "train/shared_scores.h"

namespace hone {

void ReferenceSync::fields(Fields& f, bool has_reference) {
  f("sync_ref_model", sync_ref_model,
    "true: every ref_model_sync_steps steps the reference becomes (1 - ref_model_mixup_alpha) * reference + "
    "ref_model_mixup_alpha * policy (TR-DPO); it is then saved with each checkpoint");
  f("ref_model_mixup_alpha", ref_model_mixup_alpha,
    "share of the policy in the new reference; 1 = a copy of the policy");
  f("ref_model_sync_steps", ref_model_sync_steps, "steps of the stage between two such updates of the reference");
  f.require("sync_ref_model", !sync_ref_model || has_reference,
            "sync_ref_model updates a reference, and the stage's objective keeps none: remove sync_ref_model, or give "
            "the objective a KL divergence (beta or kl_coef above 0)");
  f.require("ref_model_mixup_alpha", ref_model_mixup_alpha >= 0 && ref_model_mixup_alpha <= 1,
            "ref_model_mixup_alpha must be in [0, 1]");
  f.require("ref_model_sync_steps", ref_model_sync_steps > 0, "ref_model_sync_steps must be positive");
}

void ReferenceSync::check(const StageCheck& check) const {
  if (sync_ref_model && check.adapters)
    check.problems.add("sync_ref_model",
                       "sync_ref_model updates a reference with weights of its own; with adapters (model.lora) the "
                       "reference is the model without them: remove sync_ref_model or model.lora");
}

Reference::Reference(const StageContext& stage, double temperature)
    : context_(stage.context),
      ranks_(stage.ranks),
      copy_(stage.model->lora() ? nullptr : stage.load_start_model(false)),
      model_(copy_ ? *copy_ : *stage.model),
      temperature_(temperature) {
  if (!copy_ && is_adapter(stage.start_folder)) adapter_.emplace(context_, model_, stage.start_folder);
  if (copy_ && ranks_.size() > 1 && stage.zero == 3)
    shards_ = std::make_unique<ValueShards>(context_, model_, *ranks_.group());
}

void Reference::score_into(std::span<Group> groups) {
  std::vector<Sample*> samples;
  for (Group& group : groups)
    for (Sample& sample : group.samples) samples.push_back(&sample);
  score(samples);
}

void Reference::score_missing(std::span<Sample* const> samples) {
  std::vector<Sample*> missing;
  for (Sample* sample : samples)
    if (sample->columns.find(columns::reference_logp).size() != sample->tokens.size()) missing.push_back(sample);
  score(missing);
}

void Reference::score(std::span<Sample* const> samples) {
  if (samples.empty()) return;
  std::optional<AdapterScope> scope;
  if (!copy_) scope.emplace(model_, adapter_ ? adapter_->values() : std::span<const Tensor>());
  std::vector<std::vector<int32_t>> sequences;
  for (const Sample* sample : samples) sequences.push_back(sample->tokens);
  std::vector<TokenLogprobs> scores =
      shared_logprobs(ranks_, context_, model_, sequences, {.temperature = temperature_});
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i]->columns.set(columns::reference_logp, std::move(scores[i].logp));
}

std::vector<ValuePart> Reference::parts() const {
  HONE_CHECK(copy_, "reference: a stage that trains adapters has no weights of a reference");
  if (shards_) return shards_->own_parts();
  std::vector<ValuePart> out;
  const std::vector<Param*> params = copy_->params();
  for (size_t i = 0; i < params.size(); ++i) out.push_back({i, 0, params[i]->value.view({params[i]->num_elements()})});
  return out;
}

// Unit by unit: under ZeRO-3 the policy's hooks gather a layer, of which this rank's part is read.
void Reference::move_toward(Model& policy, double alpha) {
  if (shards_) shards_->begin_update();
  const std::vector<ValuePart> own = parts();
  const std::vector<Param*> params = policy.params();
  const std::vector<Unit> units = units_of(policy, context_.target());
  UnitHooks* const hooks = policy.value_hooks();
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (hooks) hooks->before(context_, unit, Direction::forward);
    for (const Param* param : units[unit].params) {
      const auto place = static_cast<size_t>(std::ranges::find(params, param) - params.begin());
      for (const ValuePart& part : own)
        if (part.param == place)
          blend(context_, part.values, param->value.view({param->num_elements()}).rows(part.first, part.values.size()),
                alpha);
    }
    if (hooks) hooks->after(context_, unit, Direction::forward);
  }
}

void Reference::save_state(StateSection& section) const {
  host_copies_.clear();
  const std::vector<Param*> params = copy_ ? copy_->params() : std::vector<Param*>();
  for (const ValuePart& part : copy_ ? parts() : std::vector<ValuePart>()) {
    const Param& param = *params[part.param];
    if (!ranks_.is_first() && !(shards_ && shards_->is_divided(param))) continue;  // every rank has it
    Tensor host = part.values;
    if (context_.kind() != DeviceKind::cpu) {
      std::vector<std::byte>& bytes = host_copies_.emplace_back(part.values.bytes());
      host = Tensor(bytes.data(), part.values.dtype, DeviceKind::cpu, part.values.dims());
      context_.copy(host, part.values);
    }
    section.tensors.push_back(
        {part_name(param.slices.front().name, part.first, part.values.size(), param.num_elements()), host});
  }
}

void Reference::load_state(const StateSection& section) {
  if (shards_) shards_->begin_update();
  const StateParts saved(section, "reference state");
  const std::vector<Param*> params = copy_->params();
  for (const ValuePart& part : parts())
    saved.copy(context_, params[part.param]->slices.front().name, part.first, params[part.param]->num_elements(),
               part.values);
}

}  // namespace hone
