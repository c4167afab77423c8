#include "train/param_update.h"

#include "kernels/optimizer/optimizer.h"

namespace hone {

ParamUpdate::ParamUpdate(Context& context, std::unique_ptr<GradientSum> gradients, std::unique_ptr<Optimizer> optimizer,
                         std::string list, std::span<const ParamGroup> groups)
    : context_(context), gradients_(std::move(gradients)), optimizer_(std::move(optimizer)) {
  const std::vector<ParamPart> parts = gradients_->parts();
  optimizer_->attach(context_, with_groups(parts, groups), std::move(list), gradients_->divided());
}

void ParamUpdate::apply(const GradNorm& norm, int64_t step, double learning_rate) {
  optimizer_->update(context_, norm.clip, step, learning_rate);
  gradients_->share_values();
}

GradNorm queue_norm(Context& context, Arena& arena, std::span<ParamUpdate* const> updates, double max_norm) {
  int64_t count = 0;
  for (ParamUpdate* update : updates) count += update->gradients().num_pieces();
  const Tensor pieces = arena.take(DType::f64, {count}), sum = arena.take(DType::f64, {1});
  const GradNorm out{arena.take(DType::f32, {1}), arena.take(DType::f32, {1})};
  int64_t at = 0;
  for (ParamUpdate* update : updates) {
    const int64_t own = update->gradients().num_pieces();
    update->gradients().square_pieces(pieces.rows(at, own));
    at += own;
  }
  sum_pieces(context, sum, pieces);
  clip_factor(context, out.clip, out.norm, sum, static_cast<float>(max_norm));
  return out;
}

}  // namespace hone
