// The optimizer "muon" (Jordan et al. 2024): the momentum of each matrix, as Hugging Face has it, is orthogonalized.
// AdamW updates embeddings, lm_head, and norms, biases and other vectors.
#include "kernels/optimizer/muon.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise/cast.h"
#include "kernels/optimizer/optimizer.h"
#include "train/optim/adamw.h"
#include "train/optim/newton_schulz.h"
#include "train/optim/state_memory.h"
#include "train/optim/tensor_parts.h"

namespace hone {
namespace {

struct MuonSettings : OptimizerSettings {
  double momentum = 0.95, ns_epsilon = 1e-7, weight_decay = 0, adam_learning_rate_factor = 1;
  bool nesterov = true;
  int64_t ns_steps = 5;
  std::vector<double> ns_coefficients{3.4445, -4.7750, 2.0315};
  std::string ns_dtype = "auto", adjust_lr_fn = "match_rms_adamw";
  AdamwSettings adam;
  MuonSettings() { adam.beta2 = 0.95; }
  void fields(Fields& f) override;
  std::unique_ptr<Optimizer> make() const override;
};

void MuonSettings::fields(Fields& f) {
  f("momentum", momentum, "decay rate of a matrix gradient's running mean");
  f("nesterov", nesterov, "Nesterov momentum");
  f("ns_steps", ns_steps, "steps of the Newton-Schulz iteration that orthogonalizes the momentum");
  f("ns_coefficients", ns_coefficients, "a, b and c of the iteration X = a X + (b A + c A A) X, A = X X^T");
  f("ns_epsilon", ns_epsilon, "lower bound of the norm that the momentum is divided by");
  f("ns_dtype", ns_dtype,
    "dtype of the iteration: f32 | bf16 (on a GPU; sums are f32) | auto (bf16 for bf16 weights on a GPU, else f32)");
  f("adjust_lr_fn", adjust_lr_fn,
    "factor on the learning rate of a matrix with R rows and C columns: match_rms_adamw (0.2 sqrt(max(R, C)), so that "
    "adamw's learning rate fits; Moonlight) | original (sqrt(max(1, R / C)); Keller Jordan's, with rates near 0.02)");
  f("weight_decay", weight_decay,
    "decoupled weight decay of matrices, also of AdamW's; norms and biases do not decay; 0 = none");
  f("adam_learning_rate_factor", adam_learning_rate_factor,
    "learning rate of the parameters that AdamW updates, as a multiple of learning_rate");
  adam_fields(f, adam);
  moments_field(f, adam.moments, "the momentum and AdamW's running means");
  f.require("momentum", momentum >= 0 && momentum < 1, "momentum must be in [0, 1)");
  f.require("ns_steps", ns_steps >= 1 && ns_steps < 100, "ns_steps must be in [1, 99]");
  f.require("ns_coefficients", ns_coefficients.size() == 3,
            concat("ns_coefficients has ", ns_coefficients.size(), " numbers; it must have 3: a, b and c"));
  f.require("ns_epsilon", ns_epsilon > 0, "ns_epsilon must be above 0");
  f.require("ns_dtype", ns_dtype == "auto" || ns_dtype == "f32" || ns_dtype == "bf16",
            "ns_dtype must be auto, f32 or bf16");
  f.require("adjust_lr_fn", adjust_lr_fn == "match_rms_adamw" || adjust_lr_fn == "original",
            "adjust_lr_fn must be match_rms_adamw or original");
  f.require("weight_decay", weight_decay >= 0, "weight_decay must not be negative");
  f.require("adam_learning_rate_factor", adam_learning_rate_factor >= 0,
            "adam_learning_rate_factor must not be negative");
}

// A matrix of a layer. One row or column is a vector: its orthogonalized form would be its direction.
bool is_muons(const FileTensor& tensor) {
  return tensor.is_matrix && std::min(tensor.rows, tensor.cols) > 1 && !tensor.param->lookup &&
         tensor.name != "lm_head.weight";
}

class Muon : public Optimizer {
 public:
  explicit Muon(const MuonSettings& settings) : settings_(settings) {
    AdamwSettings adam = settings.adam;
    adam.weight_decay = settings.weight_decay;
    adam_ = adam.make();
  }

  void update(Context& context, Tensor clip, int64_t step, double learning_rate) override;
  int64_t state_bytes() const override { return memory_.bytes() + adam_->state_bytes(); }
  void save_state(StateSection& section) const override {
    memory_.save(section);
    adam_->save_state(section);
  }
  void load_state(const StateSection& section) override {
    memory_.load(section);
    adam_->load_state(section);
  }

 protected:
  void allocate(Context& context, std::span<const ParamPart> parts, DividedParams* divided) override;

 private:
  struct State {
    Tensor master, momentum;  // master: f32, or empty
  };
  double rate_factor(const FileTensor& tensor) const;
  NewtonSchulz iteration(const Context& context, const TensorPart& part) const;
  void apply(Context& context, const TensorPart& part, const State& state, Tensor update, double learning_rate) const;

  const MuonSettings settings_;
  std::unique_ptr<Optimizer> adam_;
  std::unique_ptr<TensorParts> matrices_;
  StateMemory memory_;
  std::vector<State> states_;  // of the parts of matrices_
};

void Muon::allocate(Context& context, std::span<const ParamPart> parts, DividedParams* divided) {
  HONE_CHECK(settings_.ns_dtype != "bf16" || context.target() == DeviceKind::cuda,
             "muon: ns_dtype = bf16 needs a GPU: no kernel of the CPU multiplies bf16; set it to auto or f32");
  std::vector<ParamPart> rest;
  matrices_ = std::make_unique<TensorParts>(parts, divided, is_muons, &rest);
  adam_->attach(context, rest, list());
  const DType moments = settings_.adam.moments == "bf16" ? DType::bf16 : DType::f32;
  for (const TensorPart& part : matrices_->parts()) {
    if (part.part.value.dtype == DType::bf16) memory_.reserve(DType::f32, part.count());
    memory_.reserve(moments, part.count());
  }
  memory_.allocate(context);
  size_t array = 0;
  for (const auto& [tensor, first, part] : matrices_->parts()) {
    State& state = states_.emplace_back();
    if (part.value.dtype == DType::bf16) {
      state.master = memory_.array(array++);
      cast(context, state.master, part.value);
    }
    state.momentum = memory_.array(array++);
    const auto name = [&](const char* kind, Tensor values) {
      memory_.name(concat(kind, ".", state_owner(*part.param)), part.first, part.param->num_elements(), values);
    };
    if (state.master) name(master_name, state.master);
    name("momentum_buffer", state.momentum);
  }
}

double Muon::rate_factor(const FileTensor& tensor) const {
  const auto rows = static_cast<double>(tensor.file_rows()), cols = static_cast<double>(tensor.file_cols());
  return settings_.adjust_lr_fn == "original" ? std::sqrt(std::max(1.0, rows / cols))
                                              : 0.2 * std::sqrt(std::max(rows, cols));
}

NewtonSchulz Muon::iteration(const Context& context, const TensorPart& part) const {
  const bool bf16_weights = part.part.value.dtype == DType::bf16 && context.target() == DeviceKind::cuda;
  const bool is_bf16 = settings_.ns_dtype == "bf16" || (settings_.ns_dtype == "auto" && bf16_weights);
  return {.a = static_cast<float>(settings_.ns_coefficients[0]),
          .b = static_cast<float>(settings_.ns_coefficients[1]),
          .c = static_cast<float>(settings_.ns_coefficients[2]),
          .steps = settings_.ns_steps,
          .eps = static_cast<float>(settings_.ns_epsilon),
          .dtype = is_bf16 ? DType::bf16 : DType::f32};
}

void Muon::update(Context& context, Tensor clip, int64_t step, double learning_rate) {
  const MuonMomentumStep settings{.momentum = static_cast<float>(settings_.momentum),
                                  .nesterov = settings_.nesterov,
                                  .stream = stream_of_step(step)};
  const auto state_of = [&](const TensorPart& part) -> const State& {
    return states_[static_cast<size_t>(&part - matrices_->parts().data())];
  };
  for (const TensorBatch& batch : matrices_->batches()) {
    const ScratchScope scope(context);
    const Tensor updates = matrices_->gather(context, batch, [&](const TensorPart& part, Tensor own) {
      muon_momentum(context, {.update = own,
                              .buffer = state_of(part).momentum,
                              .grad = part.part.grad,
                              .clip = clip,
                              .first = part.part.place,
                              .step = settings});
    });
    for (const TensorBatch::Item& item : batch.items) {
      const TensorPart& part = matrices_->parts()[item.part];
      apply(context, part, state_of(part), updates.rows(item.at, part.tensor.size()), learning_rate);
    }
  }
  adam_->update(context, clip, step, learning_rate * settings_.adam_learning_rate_factor);
}

// update: of the whole matrix, [rows * cols].
void Muon::apply(Context& context, const TensorPart& part, const State& state, Tensor update,
                 double learning_rate) const {
  const ScratchScope scope(context);
  const Orthogonal found =
      orthogonalize(context, update.view({part.tensor.rows, part.tensor.cols}), iteration(context, part));
  const double rate = learning_rate * part.part.learning_rate_factor;
  muon_apply(context, {.value = state.master ? state.master : part.part.value,
                       .rounded = state.master ? part.part.value : Tensor(),
                       .direction = found.direction,
                       .first = part.first,
                       .transposed = found.transposed,
                       .keep = static_cast<float>(1 - rate * part.part.decay_or(settings_.weight_decay)),
                       .rate = static_cast<float>(rate * rate_factor(part.tensor))});
}

std::unique_ptr<Optimizer> MuonSettings::make() const { return std::make_unique<Muon>(*this); }

[[maybe_unused]] const bool added =
    optimizers().add("muon", [] { return std::unique_ptr<OptimizerSettings>(new MuonSettings); });

}  // namespace
}  // namespace hone
