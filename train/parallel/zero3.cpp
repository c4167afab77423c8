// ZeRO-3: the sum of ZeRO-2, and values that are divided among the ranks.
#include "train/parallel/value_shards.h"
#include "train/parallel/zero.h"

namespace hone {
namespace {

class Zero3 : public GradientSum {
 public:
  Zero3(Context& context, Model& model, std::vector<GradUnit> units, int64_t piece, ProcessGroup& group)
      : context_(context),
        group_(group),
        units_(std::move(units)),
        map_(sizes_of(units_), static_cast<size_t>(group.size()), piece),
        values_(context, model, group, piece),
        num_model_units_(static_cast<size_t>(model.shape().num_layers) + 2),
        gradients_(make_zero2(context, units_, piece, group)) {}

  void begin_step(size_t num_active) override {
    HONE_CHECK(!values_.is_gathered(), "ZeRO-3: a step begins with gathered values: call release_values() before");
    gradients_->begin_step(num_active);
  }
  void begin_round(std::span<const uint8_t> active) override { gradients_->begin_round(active); }
  void end_rounds() override {
    gradients_->end_rounds();
    values_.begin_update();
  }

  void before(Context& context, size_t unit, Direction direction) override {
    if (unit < num_model_units_) values_.before(context, unit, direction);
    gradients_->before(context, unit, direction);
  }
  void after(Context& context, size_t unit, Direction direction) override {
    gradients_->after(context, unit, direction);
    if (unit < num_model_units_) values_.after(context, unit, direction);
  }

  std::vector<ParamPart> parts() override {
    std::vector<ParamPart> out = gradients_->parts();
    for (ParamPart& part : out)
      if (!is_foreign(*part.param)) part.value = values_.own(*part.param, part.first, part.grad.size());
    return out;
  }
  DividedParams* divided() override { return gradients_->divided(); }
  bool gathers_values() const override { return true; }
  int64_t num_pieces() const override { return gradients_->num_pieces(); }
  void square_pieces(Tensor pieces) override { gradients_->square_pieces(pieces); }

  // A layer's values are gathered when a pass reads them.
  void share_values() override {
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!is_common(unit)) continue;
      std::vector<Tensor> all;
      for (size_t r = 0; r < map_.num_ranks(); ++r) {
        const ElementRange shard = map_.shard(unit, r);
        all.push_back(values_of(unit).rows(shard.first, shard.size()));
      }
      group_.all_gather(context_, all, all[static_cast<size_t>(group_.rank())], "values");
    }
  }

  std::vector<Tensor> common_values() const override {
    std::vector<Tensor> out;
    for (size_t unit = 0; unit < units_.size(); ++unit)
      if (is_common(unit)) out.push_back(values_of(unit));
    return out;
  }

  GradientBytes bytes() const override {
    GradientBytes out = gradients_->bytes();
    out.values = values_.bytes();
    return out;
  }

 private:
  static std::vector<int64_t> sizes_of(const std::vector<GradUnit>& units) {
    std::vector<int64_t> out;
    for (const GradUnit& unit : units) out.push_back(unit.grads ? unit.grads.size() : 0);
    return out;
  }
  // Of a unit behind the model's own.
  bool is_foreign(const Param& param) const {
    for (size_t unit = num_model_units_; unit < units_.size(); ++unit)
      for (const Param* own : units_[unit].trained)
        if (own == &param) return true;
    return false;
  }
  // Every rank has the trained values of the unit.
  bool is_common(size_t unit) const { return units_[unit].grads && !values_.is_divided(*units_[unit].trained.front()); }
  // The trained values of such a unit, with the gaps between parameters.
  Tensor values_of(size_t unit) const {
    const Param& first = *units_[unit].trained.front();
    const Tensor begin = is_foreign(first) ? first.value : values_.own(first, 0, first.num_elements());
    return {begin.data, begin.dtype, begin.device, {units_[unit].grads.size()}};
  }

  Context& context_;
  ProcessGroup& group_;
  std::vector<GradUnit> units_;
  ShardMap map_;  // ZeRO-2's
  ValueShards values_;
  size_t num_model_units_;
  std::unique_ptr<GradientSum> gradients_;
};

}  // namespace

std::unique_ptr<GradientSum> make_zero3(Context& context, Model& model, std::vector<GradUnit> units, int64_t piece,
                                        ProcessGroup& group) {
  return std::make_unique<Zero3>(context, model, std::move(units), piece, group);
}

}  // namespace hone
