// ZeRO-1: each rank adds the gradients of its own micro-batches, as one rank does. After the last round it sends the
// sum like the gradient of one micro-batch of ZeRO-2, from where it is.
#include <algorithm>

#include "train/parallel/zero.h"
#include "train/parallel/zero2.h"

namespace hone {
namespace {

class Zero1 : public GradientSum {
 public:
  Zero1(Context& context, std::vector<GradUnit> units, int64_t piece, ProcessGroup& group)
      : context_(context), rank_(static_cast<size_t>(group.rank())), units_(std::move(units)) {
    give_memory();
    own_ = make_local_gradient_sum(context, units_, piece);
    all_ = std::make_unique<Zero2>(context, units_, piece, group, /*staged=*/false);
    has_sum_.resize(static_cast<size_t>(group.size()));
  }

  void begin_step(size_t num_active) override {
    own_->begin_step(num_active);
    all_->begin_step(num_active);
    std::ranges::fill(has_sum_, 0);
  }
  void begin_round(std::span<const uint8_t> active) override {
    computes_ = active[rank_] != 0;
    for (size_t r = 0; r < active.size(); ++r) has_sum_[r] |= active[r];
    if (computes_) own_->begin_round({&active[rank_], 1});
  }
  void before(Context& context, size_t unit, Direction direction) override {
    if (computes_) own_->before(context, unit, direction);
  }
  void after(Context& context, size_t unit, Direction direction) override {
    if (computes_) own_->after(context, unit, direction);
  }

  void end_rounds() override {
    if (has_sum_[rank_]) own_->end_rounds();
    if (std::ranges::find(has_sum_, 1) != has_sum_.end()) {
      all_->begin_round(has_sum_);
      for (size_t unit = 0; unit < units_.size(); ++unit)
        if (units_[unit].grads) all_->add(unit, has_sum_[rank_] ? units_[unit].grads : Tensor());
    }
    all_->end_rounds();
  }

  std::vector<ParamPart> parts() override { return all_->parts(); }
  int64_t num_pieces() const override { return all_->num_pieces(); }
  void square_pieces(Tensor pieces) override { all_->square_pieces(pieces); }
  DividedParams* divided() override { return all_->divided(); }
  void share_values() override { all_->share_values(); }
  std::vector<Tensor> common_values() const override { return all_->common_values(); }
  GradientBytes bytes() const override {
    const GradientBytes own = own_->bytes(), all = all_->bytes();
    return {.sum = static_cast<int64_t>(bytes_.size()) + all.sum, .buffers = own.buffers + all.buffers};
  }

 private:
  // Gradients of all parameters.
  void give_memory() {
    int64_t size = 0;
    for (const GradUnit& unit : units_) size += unit.grads ? unit.grads.size() : 0;
    bytes_ = Buffer(context_.device(), static_cast<size_t>(size) * sizeof(float));
    const Tensor all(bytes_.data(), DType::f32, context_.kind(), {size});
    int64_t at = 0;
    for (GradUnit& unit : units_) {
      if (!unit.grads) continue;
      unit.grads = all.rows(at, unit.grads.size());
      at += unit.grads.size();
      int64_t place = 0;
      for (Param* param : unit.trained) {
        param->grad.data = unit.grads.rows(place, param->num_elements()).data;
        place += param->padded_elements();
      }
    }
  }

  Context& context_;
  size_t rank_;
  std::vector<GradUnit> units_;
  Buffer bytes_;
  std::unique_ptr<GradientSum> own_;
  std::unique_ptr<Zero2> all_;
  std::vector<uint8_t> has_sum_;  // of each rank: it had something to learn from in this step
  bool computes_ = false;         // this rank has a micro-batch in this round
};

}  // namespace

std::unique_ptr<GradientSum> make_zero1(Context& context, std::vector<GradUnit> units, int64_t piece,
                                        ProcessGroup& group) {
  return std::make_unique<Zero1>(context, std::move(units), piece, group);
}

}  // namespace hone
