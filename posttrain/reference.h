#pragma once
// Reference: the frozen model of KL terms and preference losses. It is the model as it was when the stage began. It
// writes the column reference_logp. It is a copy of the weights. If the stage trains adapters, it is the stage's model
// without adapters, or with the adapters that the stage began with. The ranks of a stage share its passes, and make the
// same calls. One thread.
//
// With a ReferenceSync the copy follows the policy (TR-DPO, Gorbatovski et al. 2024), and is a part of the checkpoint.
#include <memory>
#include <optional>
#include <span>

#include "core/config/fields.h"
#include "core/config/problems.h"
#include "core/io/checkpoint.h"
#include "data/sample.h"
#include "model/io/adapter.h"
#include "model/token_logprobs.h"
#include "train/parallel/value_shards.h"
#include "train/stage.h"

namespace hone {

// When the reference moves toward the policy, and by how much. Names are TRL's.
struct ReferenceSync {
  bool sync_ref_model = false;
  double ref_model_mixup_alpha = 0.6;
  int64_t ref_model_sync_steps = 512;
  // has_reference: the stage's objective keeps one.
  void fields(Fields& f, bool has_reference);
  // steps_done: of the stage.
  bool due(int64_t steps_done) const { return sync_ref_model && steps_done % ref_model_sync_steps == 0; }
  // Adds a problem if the stage trains adapters: its reference is no copy of the weights.
  void check(const StageCheck& check) const;
};

// State: the weights of the copy. A rank saves the parts that it alone has.
class Reference : public Stateful {
 public:
  Reference(const StageContext& stage, double temperature);
  // Uses any model as the reference.
  Reference(Context& context, std::unique_ptr<Model> model, double temperature)
      : context_(context), copy_(std::move(model)), model_(*copy_), temperature_(temperature) {}
  // Writes reference_logp of all samples.
  void score_into(std::span<Group> groups);
  // Writes reference_logp of the samples that have none yet.
  void score_missing(std::span<Sample* const> samples);
  // reference = (1 - alpha) reference + alpha policy. All ranks call it. Divided weights (ZeRO-3) stay divided.
  void move_toward(Model& policy, double alpha);

  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  void score(std::span<Sample* const> samples);
  // The weights of the copy that this rank keeps.
  std::vector<ValuePart> parts() const;

  Context& context_;
  const Ranks ranks_ = {};
  std::unique_ptr<Model> copy_;
  std::unique_ptr<ValueShards> shards_;  // of the copy, with ZeRO-3
  std::optional<AdapterValues> adapter_;
  Model& model_;
  double temperature_;
  mutable std::vector<std::vector<std::byte>> host_copies_;  // of a saved section, until the next save_state()
};

}  // namespace hone
