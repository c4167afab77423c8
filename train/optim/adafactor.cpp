// The optimizer "adafactor" (Shazeer and Stern 2018): the squared gradients of a matrix have a running mean for each
// row and each column only. Formulas and settings are those of transformers.optimization.Adafactor.
#include "kernels/optimizer/adafactor.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise/cast.h"
#include "train/optim/state_memory.h"
#include "train/optim/tensor_parts.h"

namespace hone {
namespace {

struct AdafactorSettings : OptimizerSettings {
  double decay_rate = -0.8, beta1 = 0, eps1 = 1e-30, eps2 = 1e-3, clip_threshold = 1, weight_decay = 0;
  bool scale_parameter = false, relative_step = false, warmup_init = false;
  void fields(Fields& f) override;
  std::unique_ptr<Optimizer> make() const override;
};

void AdafactorSettings::fields(Fields& f) {
  f("decay_rate", decay_rate,
    "exponent of the decay of squared gradients: step t keeps 1 - t^decay_rate of their mean");
  f("beta1", beta1, "decay rate of the update's running mean; 0 = none, which saves its memory");
  f("eps1", eps1, "added to each squared gradient");
  f("eps2", eps2, "scale_parameter: least root mean square of a parameter");
  f("clip_threshold", clip_threshold, "largest root mean square of a parameter's update before the learning rate");
  f("scale_parameter", scale_parameter, "true: the learning rate of a parameter is a multiple of its root mean square");
  f("relative_step", relative_step,
    "true: the learning rate of step t is min(0.01, 1 / sqrt(t)), and learning_rate and its schedule are not read");
  f("warmup_init", warmup_init, "relative_step: min(1e-6 t, 1 / sqrt(t)) instead");
  f("weight_decay", weight_decay, "decoupled weight decay of matrices; norms and biases do not decay; 0 = none");
  f.require("decay_rate", decay_rate < 0, "decay_rate must be below 0");
  f.require("beta1", beta1 >= 0 && beta1 < 1, "beta1 must be in [0, 1)");
  f.require("eps1", eps1 >= 1e-37, "eps1 must be at least 1e-37");
  f.require("eps2", eps2 > 0, "eps2 must be above 0");
  f.require("clip_threshold", clip_threshold > 0, "clip_threshold must be above 0");
  f.require("warmup_init", !warmup_init || relative_step, "warmup_init needs relative_step = true");
  f.require("weight_decay", weight_decay >= 0, "weight_decay must not be negative");
}

class Adafactor : public Optimizer {
 public:
  explicit Adafactor(const AdafactorSettings& settings) : settings_(settings) {}

  void update(Context& context, Tensor clip, int64_t step, double learning_rate) override;
  double learning_rate_of(int64_t step, double scheduled) const override;
  int64_t state_bytes() const override { return memory_.bytes(); }
  void save_state(StateSection& section) const override { memory_.save(section); }
  void load_state(const StateSection& section) override { memory_.load(section); }

 protected:
  void allocate(Context& context, std::span<const ParamPart> parts, DividedParams* divided) override;

 private:
  // row, col and square are those of the whole tensor, equal on every rank that has a part of it.
  struct State {
    Tensor master, mean;      // of the part; may be empty
    Tensor row, col, square;  // a matrix has row and col, a vector square
  };
  static Tensor values_of(const TensorPart& part, const State& state) {
    return state.master ? state.master : part.part.value;
  }
  void reserve(const TensorPart& part);
  void name(const TensorPart& part, const State& state);
  // The update of a whole tensor, f32 [size], from its gradient [size], and its states.
  Tensor direction(Context& context, const TensorPart& part, const State& state, Tensor grad, Tensor clip,
                   int64_t step) const;

  const AdafactorSettings settings_;
  bool divided_ = false;
  std::unique_ptr<TensorParts> tensors_;
  StateMemory memory_;
  std::vector<State> states_;
};

void Adafactor::reserve(const TensorPart& part) {
  if (part.part.value.dtype == DType::bf16) memory_.reserve(DType::f32, part.count());
  if (settings_.beta1 > 0) memory_.reserve(DType::f32, part.count());
  memory_.reserve(DType::f32, part.tensor.rows);  // of rows, or of a vector's elements
  if (part.tensor.is_matrix) memory_.reserve(DType::f32, part.tensor.cols);
}

void Adafactor::name(const TensorPart& of, const State& state) {
  const auto& [tensor, first, part] = of;
  const auto name_part = [&](const char* kind, Tensor values) {
    if (values)
      memory_.name(concat(kind, ".", state_owner(*part.param)), part.first, part.param->num_elements(), values);
  };
  const bool saved = first == 0;  // the rank with the first element saves what all have
  const auto name_whole = [&, &file_name = tensor.name](const char* kind, Tensor values) {
    if (values) memory_.name(concat(kind, ".", file_name), 0, values.size(), values, saved);
  };
  name_part(master_name, state.master);
  name_part("exp_avg", state.mean);
  name_whole("exp_avg_sq_row", state.row);
  name_whole("exp_avg_sq_col", state.col);
  name_whole("exp_avg_sq", state.square);
}

void Adafactor::allocate(Context& context, std::span<const ParamPart> parts, DividedParams* divided) {
  divided_ = divided != nullptr;
  tensors_ = std::make_unique<TensorParts>(parts, divided, [](const FileTensor&) { return true; });
  for (const TensorPart& part : tensors_->parts()) reserve(part);
  memory_.allocate(context);
  size_t array = 0;
  for (const TensorPart& part : tensors_->parts()) {
    State& state = states_.emplace_back();
    if (part.part.value.dtype == DType::bf16) {
      state.master = memory_.array(array++);
      cast(context, state.master, part.part.value);
    }
    if (settings_.beta1 > 0) state.mean = memory_.array(array++);
    (part.tensor.is_matrix ? state.row : state.square) = memory_.array(array++);
    if (part.tensor.is_matrix) state.col = memory_.array(array++);
    name(part, state);
  }
}

double Adafactor::learning_rate_of(int64_t step, double scheduled) const {
  if (!settings_.relative_step) return scheduled;
  const auto steps = static_cast<double>(step);
  return std::min(settings_.warmup_init ? 1e-6 * steps : 1e-2, 1 / std::sqrt(steps));
}

Tensor Adafactor::direction(Context& context, const TensorPart& part, const State& state, Tensor grad, Tensor clip,
                            int64_t step) const {
  const int64_t rows = part.tensor.rows, cols = part.tensor.cols;
  const AdafactorStep settings{
      .beta2 = static_cast<float>(1 - std::pow(static_cast<double>(step), settings_.decay_rate)),
      .eps = static_cast<float>(settings_.eps1)};
  const Tensor out = context.scratch().take(DType::f32, {rows * cols});
  if (part.tensor.is_matrix)
    adafactor_factored(context, {.update = out.view({rows, cols}),
                                 .row = state.row,
                                 .col = state.col,
                                 .grad = grad.view({rows, cols}),
                                 .clip = clip,
                                 .step = settings});
  else
    adafactor_vector(context, {.update = out, .square = state.square, .grad = grad, .clip = clip, .step = settings});
  return out;
}

void Adafactor::update(Context& context, Tensor clip, int64_t step, double learning_rate) {
  const auto state_of = [&](const TensorPart& part) -> const State& {
    return states_[static_cast<size_t>(&part - tensors_->parts().data())];
  };
  // The numbers of a batch's tensors: this rank's own if they are whole, otherwise gathered.
  const auto whole = [&](const TensorBatch& batch, const auto& numbers) {
    if (!divided_) return numbers(tensors_->parts()[batch.items.front().part]);
    return tensors_->gather(context, batch,
                            [&](const TensorPart& part, Tensor own) { cast(context, own, numbers(part)); });
  };
  for (const TensorBatch& batch : tensors_->batches()) {
    const ScratchScope scope(context);
    const Tensor grads = whole(batch, [](const TensorPart& part) { return part.part.grad; });
    const Tensor values = settings_.scale_parameter
                              ? whole(batch, [&](const TensorPart& part) { return values_of(part, state_of(part)); })
                              : Tensor();
    for (const TensorBatch::Item& item : batch.items) {
      const ScratchScope tensor_scope(context);
      const TensorPart& part = tensors_->parts()[item.part];
      const State& state = state_of(part);
      const int64_t size = part.tensor.size();
      const Tensor found = direction(context, part, state, grads.rows(item.at, size), clip, step);
      const double rate = learning_rate_of(step, learning_rate) * part.part.learning_rate_factor;
      adafactor_apply(context,
                      {.value = values_of(part, state),
                       .rounded = state.master ? part.part.value : Tensor(),
                       .mean = state.mean,
                       .update = found.rows(part.first, part.count()),
                       .squares = sum_of_squares(context, found),
                       .value_squares = values ? sum_of_squares(context, values.rows(item.at, size)) : Tensor(),
                       .size = size,
                       .rate = static_cast<float>(rate),
                       .eps = static_cast<float>(settings_.eps2),
                       .clip_threshold = static_cast<float>(settings_.clip_threshold),
                       .beta1 = static_cast<float>(settings_.beta1),
                       .weight_decay = static_cast<float>(part.part.decay_or(settings_.weight_decay))});
    }
  }
}

std::unique_ptr<Optimizer> AdafactorSettings::make() const { return std::make_unique<Adafactor>(*this); }

[[maybe_unused]] const bool added =
    optimizers().add("adafactor", [] { return std::unique_ptr<OptimizerSettings>(new AdafactorSettings); });

}  // namespace
}  // namespace hone
