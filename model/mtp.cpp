#include "model/mtp.h"

#include <algorithm>

#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/embedding.h"
#include "kernels/lm_head/logprob.h"
#include "kernels/lm_head/multi_token.h"

namespace hone {

constexpr int64_t own_sums = 3;  // of multi_token_sums

MtpModule MtpModule::make(const std::string& prefix, int64_t width, double init_std, double norm_eps,
                          double norm_offset) {
  MtpModule out;
  out.enorm = Norm::rms(prefix + "enorm", width, norm_eps, norm_offset);
  out.hnorm = Norm::rms(prefix + "hnorm", width, norm_eps, norm_offset);
  out.eh_proj = Linear({{prefix + "eh_proj", width}}, 2 * width, false, init_std);
  out.norm = Norm::rms(prefix + "shared_head.norm", width, norm_eps, norm_offset);
  return out;
}

Mtp::Mtp(std::vector<MtpModule> modules, double loss_coef) : modules_(std::move(modules)), loss_coef_(loss_coef) {
  ModuleList all;
  for (MtpModule& module : modules_) {
    module.enorm.add_to(all);
    module.hnorm.add_to(all);
    all.add(module.eh_proj);
    module.layer.add_to(all);
    module.norm.add_to(all);
  }
  params_ = std::move(all.params);
  std::ranges::stable_partition(params_, [](const Param* param) { return param->trainable; });
}

void Mtp::add_to(ModuleList& list) const {
  for (Param* param : params_) list.add(*param);
}

int64_t Mtp::num_aux_sums() const {
  if (loss_coef_ == 0) return 0;
  int64_t out = 0;
  for (const MtpModule& module : modules_) out += own_sums + module.layer.num_aux_sums();
  return out;
}

// The tensors of one module's pass, in scratch memory of the caller's scope.
struct Mtp::Step {
  Batch batch;                                              // with the tokens that the module embeds
  Tensor weights;                                           // [T]: of the tokens that it predicts
  Tensor hidden, embedded, joined, projected, out, result;  // [T, D]; joined [T, 2 D]
  Tensor from, targets, target_weights, dlogp;              // [R]: the rows with a loss
  Tensor drows;                                             // [R, D]: the gradient of `result` there, by the loss

  Step() = default;
  Step(Context& context, const Batch& tokens, Tensor hidden_, int64_t R);
  // The loss and its gradient. Adds to sums [3].
  void add_loss(Context& context, Model& model, Tensor sums) const;
};

Mtp::Step::Step(Context& context, const Batch& tokens, Tensor hidden_, int64_t R) : batch(tokens), hidden(hidden_) {
  const int64_t T = hidden.dim(0), D = hidden.dim(1);
  const auto column = [&](DType dtype, int64_t rows) { return context.scratch().take(dtype, {rows}); };
  const auto wide = [&](int64_t rows, int64_t columns) {
    return context.scratch().take(hidden.dtype, {rows, columns});
  };
  batch.tokens = column(DType::i32, T);
  weights = column(DType::f32, T);
  from = column(DType::i32, R);
  targets = column(DType::i32, R);
  target_weights = column(DType::f32, R);
  dlogp = column(DType::f32, R);
  embedded = wide(T, D);
  joined = wide(T, 2 * D);
  projected = wide(T, D);
  out = wide(T, D);
  result = wide(T, D);
  drows = wide(R, D);
}

void Mtp::Step::add_loss(Context& context, Model& model, Tensor sums) const {
  const ScratchScope scope(context);
  const Tensor read = context.scratch().take(drows.dtype, drows.dims());
  const auto column = [&] { return context.scratch().take(DType::f32, {from.size()}); };
  const Tensor logp = column(), lse = column(), hit = column();
  gather_rows(context, read, result, from);
  const Param& head = model.lm_head();
  logprob_fused(context, {.logp = logp,
                          .lse = lse,
                          .hit = hit,
                          .dhidden = drows,
                          .dw = head.grad_target(),
                          .grad = {.logp = dlogp, .entropy = {}},
                          .hidden = read,
                          .w = head.value,
                          .targets = targets,
                          .inv_temperature = 1,
                          .softcap = model.shape().logit_softcap});
  multi_token_sums(context, {.sums = sums, .logp = logp, .hit = hit, .weights = target_weights});
}

void Mtp::forward(Context& context, Model& model, const MtpPass& pass, size_t index, Step& step, Tensor hidden,
                  int64_t first_sum) const {
  const MtpModule& module = modules_[index];
  const int64_t T = hidden.dim(0), D = hidden.dim(1);
  step = Step(context, pass.batch, hidden, pass.rows.size());
  const ScratchScope scope(context);
  multi_token_shift(context, {.next = step.batch.tokens,
                              .next_weights = step.weights,
                              .from = step.from,
                              .targets = step.targets,
                              .target_weights = step.target_weights,
                              .dlogp = step.dlogp,
                              .tokens = pass.batch.tokens,
                              .positions = pass.batch.positions,
                              .weights = pass.aux.target_weights,
                              .rows = pass.rows,
                              .distance = static_cast<int64_t>(index) + 1,
                              .factor = static_cast<float>(loss_coef_ / static_cast<double>(size()))});
  model.embed(context, step.batch, step.embedded);
  Frame own(context, &pass.tape);
  module.enorm.forward(context, step.joined.columns(0, D), step.embedded, module.enorm.save(own, T));
  module.hnorm.forward(context, step.joined.columns(D, D), hidden, module.hnorm.save(own, T));
  module.eh_proj.forward(context, step.projected, step.joined);
  const Tensor layer_sums = pass.aux.sums.rows(first_sum + own_sums, module.layer.num_aux_sums());
  module.layer.forward(context,
                       {.batch = pass.batch, .tape = &pass.tape, .aux = {.weights = step.weights, .sums = layer_sums}},
                       step.out, step.projected);
  Frame last(context, &pass.tape);
  module.norm.forward(context, step.result, step.out, module.norm.save(last, T));
  step.add_loss(context, model, pass.aux.sums.rows(first_sum, own_sums));
}

// dhidden: in, the gradient of `result` by the module after this one; out, the gradient of `hidden`. The last module
// reads nothing from it.
void Mtp::backward(Context& context, Model& model, const MtpPass& pass, size_t index, const Step& step,
                   Tensor dhidden) const {
  const MtpModule& module = modules_[index];
  const int64_t T = step.out.dim(0), D = step.out.dim(1);
  const bool last = index + 1 == size();
  const ScratchScope scope(context);
  const auto wide = [&](int64_t columns) { return context.scratch().take(step.out.dtype, {T, columns}); };
  const Tensor dresult = wide(D), dlayer = wide(D), djoined = wide(2 * D);
  scatter_rows(context, dresult, step.drows, step.from);
  if (!last) add_into(context, dresult, dhidden);
  Saved of_norm = pass.tape.pop_frame();
  module.norm.backward(context, dlayer, dresult, step.out, module.norm.restore(of_norm), false);
  module.layer.backward(context, {.batch = pass.batch, .tape = &pass.tape, .aux = {.weights = step.weights}}, dlayer,
                        step.projected);
  module.eh_proj.backward(context, djoined, dlayer, step.joined);
  Saved own = pass.tape.pop_frame();
  const Norm::Stats of_embedded = module.enorm.restore(own), of_hidden = module.hnorm.restore(own);
  module.enorm.backward(context, dresult, djoined.columns(0, D), step.embedded, of_embedded, false);
  model.embed_backward(context, step.batch, dresult);
  module.hnorm.backward(context, dhidden, djoined.columns(D, D), step.hidden, of_hidden, false);
}

void Mtp::learn(Context& context, Model& model, const MtpPass& pass, Tensor dx, Tensor x) const {
  const OpRange range(context, "mtp");
  const ScratchScope scope(context);
  const auto like_x = [&] { return context.scratch().take(x.dtype, x.dims()); };
  const Tensor hidden = like_x(), dhidden = like_x(), dlast = like_x();
  model.final_norm(context, hidden, x, &pass.tape);
  std::vector<Step> steps(size());
  int64_t first_sum = 0;
  for (size_t k = 0; k < size(); ++k) {
    forward(context, model, pass, k, steps[k], k == 0 ? hidden : steps[k - 1].result, first_sum);
    first_sum += own_sums + modules_[k].layer.num_aux_sums();
  }
  for (size_t k = size(); k-- > 0;) backward(context, model, pass, k, steps[k], dhidden);
  model.final_norm_backward(context, dlast, dhidden, x, pass.tape);
  add_into(context, dx, dlast);
}

void Mtp::end_step(Context& context, std::span<const double> sums, AuxReport& report) {
  if (sums.empty()) return;
  for (MtpModule& module : modules_) {
    const std::span<const double> own = sums.first(own_sums);
    const auto of_layer = static_cast<size_t>(module.layer.num_aux_sums());
    module.layer.end_step(context, sums.subspan(own_sums, of_layer), report);
    sums = sums.subspan(own_sums + of_layer);
    if (own[2] <= 0) continue;  // no sequence is long enough
    report.loss += loss_coef_ / static_cast<double>(size()) * own[0];
    report.add("mtp/loss", own[0] / own[2]);
    report.add("mtp/accuracy", own[1] / own[2]);
  }
}

Mtp* mtp_of(const Model& model) {
  const auto* const source = dynamic_cast<const MtpSource*>(&model);
  return source ? source->mtp() : nullptr;
}

bool back_adds_to_front(Model& model) { return model.lm_head().lookup || mtp_of(model); }

std::vector<MtpCopy> mtp_copies(Model& model) {
  std::vector<MtpCopy> out;
  const Mtp* const mtp = mtp_of(model);
  if (!mtp) return out;
  const Param* const embedding = model.base_params().front();
  for (size_t k = 0; k < mtp->size(); ++k) {
    const std::string prefix = concat("model.layers.", model.shape().num_layers + static_cast<int64_t>(k), ".");
    out.push_back({prefix + "embed_tokens.weight", embedding});
    out.push_back({prefix + "shared_head.head.weight", &model.lm_head()});
  }
  return out;
}

}  // namespace hone
