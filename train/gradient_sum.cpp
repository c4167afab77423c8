#include "train/gradient_sum.h"

#include <algorithm>

#include "kernels/elementwise/cast.h"
#include "model/mtp.h"

namespace hone {
GradStaging::GradStaging(Context& context, const std::vector<GradUnit>& units, std::vector<uint8_t> staged,
                         size_t num_shared)
    : context_(context), units_(units), staged_(std::move(staged)), sizes_(num_shared) {
  for (size_t i = 0; i < units_.size(); ++i) {
    std::vector<Tensor>& own = home_.emplace_back();
    for (const Param* param : units_[i].trained) own.push_back(param->grad);
    slots_.push_back(i % num_shared);
    if (!is_staged(i)) continue;
    if (units_[i].stays_open) {
      slots_.back() = sizes_.size();
      sizes_.push_back(0);
    }
    int64_t& size = sizes_[slots_.back()];
    size = std::max(size, units_[i].grads.size());
  }
}

GradStaging::~GradStaging() { close_all(); }

void GradStaging::allocate() {
  if (!first_.empty()) return;
  int64_t total = 0;
  for (const int64_t size : sizes_) {
    first_.push_back(total);
    total += size;
  }
  bytes_ = Buffer(context_.device(), static_cast<size_t>(total) * sizeof(float));
}

Tensor GradStaging::buffer(size_t unit) const {
  void* const data = bytes_.data() ? static_cast<float*>(bytes_.data()) + first_[slots_[unit]] : nullptr;
  return Tensor(data, DType::f32, context_.kind(), {units_[unit].grads.size()});
}

void GradStaging::open(size_t unit) {
  const Tensor memory = buffer(unit);
  begin_gradients(context_, units_[unit], memory);
  int64_t at = 0;
  for (Param* param : units_[unit].trained) {
    param->grad.data = memory.rows(at, param->num_elements()).data;
    at += param->padded_elements();
  }
}

void GradStaging::close(size_t unit) {
  for (size_t p = 0; p < units_[unit].trained.size(); ++p) units_[unit].trained[p]->grad.data = home_[unit][p].data;
}

void GradStaging::close_all() {
  for (size_t i = 0; i < units_.size(); ++i) close(i);
}

namespace {

// One rank. The first micro-batch's gradient is computed in the sum itself. A later one gets a staging buffer for each
// unit whose backward pass adds to an element more than once; the buffer is added when the unit is complete. Units that
// add once add to the sum.
class LocalGradientSum : public GradientSum {
 public:
  LocalGradientSum(Context& context, std::vector<GradUnit> units, int64_t piece)
      : context_(context), units_(std::move(units)), piece_(piece), staging_(context, units_, staged(units_)) {}

  void begin_step(size_t num_active) override {
    staging_.close_all();  // an exception may have ended the last step inside of a pass
    begun_.assign(units_.size(), 0);
    if (num_active > 1) staging_.allocate();
  }

  void begin_round(std::span<const uint8_t>) override {}

  void before(Context&, size_t unit, Direction direction) override {
    if (direction == Direction::forward || !units_[unit].grads) return;
    if (!begun_[unit])
      begin_gradients(context_, units_[unit], units_[unit].grads);
    else if (staging_.is_staged(unit))
      staging_.open(unit);
  }

  void after(Context&, size_t unit, Direction direction) override {
    if (direction == Direction::forward || !units_[unit].grads) return;
    end_gradients(context_, units_[unit]);
    if (begun_[unit] && staging_.is_staged(unit)) {
      add_into(context_, units_[unit].grads, staging_.buffer(unit));
      staging_.close(unit);
    }
    begun_[unit] = 1;
  }

  void end_rounds() override {
    for (size_t unit = 0; unit < units_.size(); ++unit)
      if (units_[unit].grads && !begun_[unit]) context_.zero(units_[unit].grads);
  }

  std::vector<ParamPart> parts() override {
    std::vector<Param*> all;
    for (const GradUnit& unit : units_) all.insert(all.end(), unit.trained.begin(), unit.trained.end());
    return whole_parts(all);
  }

  int64_t num_pieces() const override {
    int64_t out = 0;
    for (const GradUnit& unit : units_) out += pieces_of(unit);
    return out;
  }

  void square_pieces(Tensor pieces) override {
    int64_t at = 0;
    for (const GradUnit& unit : units_) {
      const int64_t count = pieces_of(unit);
      if (count > 0) sum_squares(context_, pieces.rows(at, count), unit.grads, piece_);
      at += count;
    }
  }

  GradientBytes bytes() const override { return {.buffers = staging_.bytes()}; }

 private:
  static std::vector<uint8_t> staged(const std::vector<GradUnit>& units) {
    std::vector<uint8_t> out;
    for (const GradUnit& unit : units) out.push_back(unit.grads && !unit.adds_once);
    return out;
  }
  int64_t pieces_of(const GradUnit& unit) const { return unit.grads ? (unit.grads.size() + piece_ - 1) / piece_ : 0; }

  Context& context_;
  std::vector<GradUnit> units_;
  int64_t piece_;
  GradStaging staging_;
  std::vector<uint8_t> begun_;  // by unit: the sum has a micro-batch's gradient
};

}  // namespace

void begin_gradients(Context& context, const GradUnit& unit, Tensor memory) {
  int64_t at = 0, zero_from = 0;
  const auto zero_until = [&](int64_t end) {
    if (end > zero_from) context.zero(memory.rows(zero_from, end - zero_from));
  };
  for (const Param* param : unit.trained) {
    param->grad_undefined = param->product_grad;
    if (param->product_grad) {
      zero_until(at);
      zero_from = at + param->num_elements();
    }
    at += param->padded_elements();
  }
  zero_until(memory.size());
}

void end_gradients(Context& context, const GradUnit& unit) {
  for (const Param* param : unit.trained) param->grad_to_add_to(context);
}

std::vector<GradUnit> grad_units(Context& context, Model& model) {
  std::vector<GradUnit> out;
  for (Unit& unit : units_of(model, context.target())) {
    GradUnit& added = out.emplace_back();
    added.adds_once = unit.adds_once;
    if (unit.grads.size() > 0) {
      const Tensor first = unit.trained.front()->value;
      added.values = Tensor(first.data, first.dtype, first.device, {unit.grads.size()});
      added.grads = Tensor(unit.trained.front()->grad.data, DType::f32, first.device, {unit.grads.size()});
    }
    int64_t padded = 0;
    for (const Param* param : unit.trained) padded += param->padded_elements();
    HONE_CHECK(padded == unit.grads.size(), "trainer: ", unit.trained.front()->slices.front().name,
               ": a frozen parameter lies between trained ones of its layer");
    added.trained = std::move(unit.trained);
  }
  out.front().stays_open = back_adds_to_front(model);
  return out;
}

void drop_gradient_memory(Context& context, Model& model) {
  model.free_gradients(context);
  for (Param* param : model.params())
    if (param->trainable) param->grad = Tensor(nullptr, DType::f32, param->value.device, param->shape);
}

std::unique_ptr<GradientSum> make_local_gradient_sum(Context& context, std::vector<GradUnit> units, int64_t piece) {
  return std::make_unique<LocalGradientSum>(context, std::move(units), piece);
}

}  // namespace hone
