#include "model/forward.h"

#include "core/base/rank_thread.h"
#include "kernels/elementwise/embedding.h"
#include "kernels/elementwise/noise.h"
#include "model/attention.h"

namespace hone {
namespace {

void check_positions(const Model& model, const Batch& batch) {
  HONE_CHECK(batch.num_positions <= model.shape().max_positions, "a sequence of ", batch.num_positions,
             " tokens; the model has ", model.shape().max_positions, " positions");
}

// The hooks of a pass that has none.
UnitHooks* no_hooks() {
  static UnitHooks none;
  return &none;
}

// The groups of layers that share keys and values; none for most models.
std::span<const std::shared_ptr<SharedKv>> shared_kv_of(Model& model) {
  const auto* shares = dynamic_cast<const SharesKv*>(&model);
  return shares ? shares->shared_kv() : std::span<const std::shared_ptr<SharedKv>>();
}

// Lends all groups the same memory, since layers run one after another: of the context's scratch, valid until the
// caller's ScratchScope ends.
// All groups of a model have the same shape.
void lend(Context& context, Model& model, int64_t num_tokens, Tensor SharedKv::*first, Tensor SharedKv::*second) {
  const auto groups = shared_kv_of(model);
  if (groups.empty()) return;
  const Tensor a = groups.front()->take(context.scratch(), model.dtype(), num_tokens),
               b = groups.front()->take(context.scratch(), model.dtype(), num_tokens);
  for (const auto& group : groups) {
    (*group).*first = a;
    (*group).*second = b;
  }
}

}  // namespace

// Calls the hooks of a forward pass.
static void skip_forward(Context& context, const Model& model, UnitHooks& hooks) {
  const size_t back = static_cast<size_t>(model.shape().num_layers) + 1;
  hooks.before(context, 0, Direction::forward);
  for (size_t unit = 1; unit < back; ++unit) {
    hooks.before(context, unit, Direction::forward);
    hooks.after(context, unit, Direction::forward);
  }
  hooks.before(context, back, Direction::forward);
}

TrainingPass::TrainingPass(Context& context, Model& model, Recompute recompute, UnitHooks* hooks)
    : context_(context),
      model_(model),
      recompute_(recompute),
      hooks_(hooks ? hooks : no_hooks()),
      tape_(context.device(), recompute == Recompute::selective ? SavePolicy::selective : SavePolicy::all) {}

Tensor TrainingPass::forward(const Batch& batch, Tensor rows) { return forward(batch, rows, {}, {}); }

Tensor TrainingPass::forward(const Batch& batch, Tensor rows, const EmbeddingNoise& noise,
                             const std::optional<DropoutStream>& draws, const AuxLoss& aux) {
  note_progress();
  const OpRange range(context_, "forward");
  const DropoutScope dropout(model_, draws);
  check_positions(model_, batch);
  batch_ = batch;
  rows_ = rows;
  draws_ = draws;
  aux_ = aux;
  began_backward_ = false;
  tape_.clear();
  inputs_.clear();
  const auto groups = shared_kv_of(model_);
  std::vector<Tensor> shared;  // k and v of each group
  const int64_t width = model_.shape().hidden_size;
  const auto push = [&](int64_t count) { return tape_.push(model_.dtype(), {count, width}); };
  const LayerPass pass{.batch = batch, .tape = recompute_ == Recompute::full ? nullptr : &tape_, .aux = aux};
  inputs_.push_back(push(batch.num_tokens));
  hooks_->before(context_, 0, Direction::forward);
  model_.embed(context_, batch, inputs_.back());
  if (noise.alpha > 0) add_embedding_noise(context_, inputs_.back(), batch.offsets, noise);
  for (int64_t layer = 0; layer < model_.shape().num_layers; ++layer) {
    if (const size_t group = shared.size() / 2; group < groups.size() && groups[group]->owner == layer) {
      SharedKv& kv = *groups[group];
      for (Tensor* part : {&kv.k, &kv.v})
        shared.push_back(*part = tape_.push(model_.dtype(), {batch.num_tokens, kv.num_kv_heads, kv.head_dim}));
    }
    const Tensor in = inputs_.back(), out = push(batch.num_tokens);
    const size_t unit = static_cast<size_t>(layer) + 1;
    hooks_->before(context_, unit, Direction::forward);
    model_.forward_layer(layer, context_, pass, out, in);
    hooks_->after(context_, unit, Direction::forward);
    inputs_.push_back(out);
  }
  read_ = push(rows.dim(0));
  const Tensor hidden = push(rows.dim(0));
  gather_rows(context_, read_, inputs_.back(), rows);
  inputs_.insert(inputs_.end(), shared.begin(), shared.end());
  hooks_->before(context_, back_unit(), Direction::forward);
  model_.final_norm(context_, hidden, read_, &tape_);
  return hidden;
}

void TrainingPass::begin_backward() {
  if (front_stays_open()) hooks_->before(context_, 0, Direction::backward);
  hooks_->before(context_, back_unit(), Direction::backward);
  began_backward_ = true;
}

void TrainingPass::begin_front_backward() {
  if (!front_stays_open()) hooks_->before(context_, 0, Direction::backward);
}

void TrainingPass::skip_backward() {
  if (!began_backward_) begin_backward();
  began_backward_ = false;
  hooks_->after(context_, back_unit(), Direction::backward);
  for (size_t unit = back_unit() - 1; unit > 0; --unit) {
    hooks_->before(context_, unit, Direction::backward);
    hooks_->after(context_, unit, Direction::backward);
  }
  begin_front_backward();
  hooks_->after(context_, 0, Direction::backward);
}

void TrainingPass::skip_forward() { hone::skip_forward(context_, model_, *hooks_); }

// Multi-token prediction, within the back unit's part of the backward pass.
void TrainingPass::learn_further_ahead(Tensor dx) {
  const Mtp* const mtp = mtp_of(model_);
  if (!mtp || mtp->num_aux_sums() == 0 || !aux_.sums) return;
  const int64_t count = mtp->num_aux_sums();
  const AuxLoss own{.target_weights = aux_.target_weights,
                    .sums = aux_.sums.rows(model_.num_aux_sums() - count, count)};
  mtp->learn(context_, model_, {.batch = batch_, .rows = rows_, .aux = own, .tape = tape_}, dx, inputs_.back());
}

void TrainingPass::backward(Tensor dhidden) {
  const OpRange range(context_, "backward");
  const DropoutScope dropout(model_, draws_);
  ScratchScope scope(context_);
  if (!began_backward_) begin_backward();
  began_backward_ = false;
  const int64_t width = model_.shape().hidden_size;
  const Tensor dx = context_.scratch().take(model_.dtype(), {batch_.num_tokens, width});
  {
    ScratchScope inner(context_);
    const Tensor dread = context_.scratch().take(model_.dtype(), {rows_.dim(0), width});
    model_.final_norm_backward(context_, dread, dhidden, read_, tape_);
    scatter_rows(context_, dx, dread, rows_);
  }
  learn_further_ahead(dx);
  hooks_->after(context_, back_unit(), Direction::backward);
  tape_.pop();  // hidden
  tape_.pop();  // read
  // The forward pass has added to the sums.
  const LayerPass pass{.batch = batch_, .tape = &tape_, .aux = {.weights = aux_.weights}};
  const int64_t num_layers = model_.shape().num_layers;
  auto groups = shared_kv_of(model_);
  for (size_t group = 0; group < groups.size(); ++group) {  // another pass may have lent other memory since forward
    const size_t at = static_cast<size_t>(num_layers) + 1 + 2 * group;
    groups[group]->k = inputs_[at];
    groups[group]->v = inputs_[at + 1];
  }
  lend(context_, model_, batch_.num_tokens, &SharedKv::dk, &SharedKv::dv);
  for (int64_t layer = num_layers - 1; layer >= 0; --layer) {
    const Tensor in = inputs_[static_cast<size_t>(layer)];
    const size_t unit = static_cast<size_t>(layer) + 1;
    hooks_->before(context_, unit, Direction::backward);
    if (recompute_ == Recompute::full) {
      ScratchScope inner(context_);
      const Tensor out = context_.scratch().take(model_.dtype(), {batch_.num_tokens, width});
      model_.forward_layer(layer, context_, pass, out, in);
    }
    model_.backward_layer(layer, context_, pass, dx, in);
    hooks_->after(context_, unit, Direction::backward);
    tape_.pop();  // the layer's output
    if (groups.empty() || groups.back()->owner != layer) continue;
    groups = groups.first(groups.size() - 1);
    tape_.pop();  // v
    tape_.pop();  // k
  }
  begin_front_backward();
  model_.embed_backward(context_, batch_, dx);
  hooks_->after(context_, 0, Direction::backward);
  tape_.pop();
}

// The layers one by one, with hooks at their borders: the bits of Model::infer_layers().
static void infer_layers(Context& context, Model& model, const LayerPass& pass, Tensor x, UnitHooks& hooks) {
  for (int64_t layer = 0; layer < model.shape().num_layers; ++layer) {
    const size_t unit = static_cast<size_t>(layer) + 1;
    hooks.before(context, unit, Direction::forward);
    model.forward_layer(layer, context, pass, x, x);
    hooks.after(context, unit, Direction::forward);
  }
}

Tensor infer(Context& context, Model& model, const Batch& batch, Tensor rows, const KvView* kv) {
  UnitHooks* const hooks = model.value_hooks();
  check_positions(model, batch);
  const int64_t width = model.shape().hidden_size;
  const Tensor hidden = context.scratch().take(model.dtype(), {rows ? rows.dim(0) : batch.num_tokens, width});
  ScratchScope scope(context);
  const Tensor x = context.scratch().take(model.dtype(), {batch.num_tokens, width});
  if (hooks) hooks->before(context, 0, Direction::forward);
  model.embed(context, batch, x);
  const LayerPass pass{.batch = batch, .kv = kv};
  if (!kv) lend(context, model, batch.num_tokens, &SharedKv::k, &SharedKv::v);
  if (hooks)
    infer_layers(context, model, pass, x, *hooks);
  else
    model.infer_layers(context, pass, x);
  Tensor read = x;
  if (rows) {
    read = context.scratch().take(model.dtype(), {rows.dim(0), width});
    gather_rows(context, read, x, rows);
  }
  if (hooks) hooks->before(context, static_cast<size_t>(model.shape().num_layers) + 1, Direction::forward);
  model.final_norm(context, hidden, read, nullptr);
  return hidden;
}

void skip_infer(Context& context, Model& model) {
  if (UnitHooks* const hooks = model.value_hooks()) skip_forward(context, model, *hooks);
}

}  // namespace hone
