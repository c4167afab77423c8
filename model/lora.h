#pragma once
// LoRA (Hu et al. 2021): a frozen matrix W [out, in] and a trained pair A [r, in], B [out, r]:
//
//   y = W x + scale * B (A dropout(x))
//
// A Linear that holds several Hugging Face modules as row slices has an adapter for each or for some of them. The model
// without its adapters is the reference of DPO, PPO and GRPO: AdapterScope switches them off, and no second model is
// needed.
#include <filesystem>
#include <optional>
#include <span>

#include "model/lora_config.h"
#include "model/model.h"

namespace hone {

// What dropout's draws depend on besides the seed and the module: the optimizer step, and how many of its tokens came
// before the micro-batch, so that a token's draws do not depend on how a step is cut.
struct DropoutStream {
  int64_t step = 0, first_token = 0;
};

// What a model's adapters share.
struct Lora {
  LoraConfig config;           // its target_modules as name_targets() gives them
  std::filesystem::path base;  // the folder of the frozen weights, for adapter_config.json
  uint64_t seed = 0;           // of dropout
  bool enabled = true;
  std::optional<DropoutStream> draws;  // in a training pass alone
  bool drops() const { return draws && config.lora_dropout > 0; }
};

// The adapters of one Linear.
class LoraLayer {
 public:
  struct Slice {
    std::string module;
    int64_t first_row = 0, rows = 0;  // of W
  };
  // shared must outlive it.
  LoraLayer(const Lora& shared, std::vector<Slice> slices, int64_t inputs);

  // y [T, out] is added to.
  void forward(Context&, Tensor y, Tensor x) const;
  // dx [T, in] is added to.
  void backward_input(Context&, Tensor dx, Tensor dy) const;
  // The gradients of a and b are added to.
  void backward_weight(Context&, Tensor dy, Tensor x) const;
  // weight [out, in] += scale * B A, summed in f32 and rounded once.
  void merge_into(Context&, Tensor weight) const;

  Param a;  // [slices * r, in]; starts as PEFT's: uniform within 1 / sqrt(in) (Kaiming with a = sqrt 5)
  Param b;  // [the slices' rows, r]; starts at zero

 private:
  int64_t num_slices() const { return static_cast<int64_t>(slices_.size()); }
  Tensor rows_of(Tensor b_like, int64_t slice) const;
  // Blocks whose inputs are the same: with dropout each has its own.
  int64_t blocks_at_once() const { return shared_->drops() ? 1 : num_slices(); }
  // x as slice i takes it; memory [T, in] is written where there is dropout.
  Tensor input_of(Context&, Tensor memory, Tensor x, int64_t slice) const;
  Tensor input_memory(Context&, Tensor x) const;
  void drop(Context&, Tensor to, Tensor from, int64_t slice) const;
  void add_scale(Context&, Tensor x) const;
  // scale * A x and scale * B^T dy of all slices, [T, slices * r], in scratch.
  Tensor inner(Context&, Tensor x) const;
  Tensor inner_gradient(Context&, Tensor dy) const;

  const Lora* shared_;
  std::vector<Slice> slices_;
  std::vector<int64_t> b_rows_;  // where each slice begins in b
};

// Adds every adapter to its weight and takes the adapters off: the same model within rounding, as one without. All of
// it may then be saved.
void merge_lora(Context& context, Model& model);

// While it lives the model's adapters have other values, or none: it computes what the frozen weights alone do. Not for
// while an engine's recorded passes run.
class AdapterScope {
 public:
  // values: one for each of model.adapter_params(), which they must outlive; or empty: no adapters.
  explicit AdapterScope(Model& model, std::span<const Tensor> values = {});
  ~AdapterScope();
  AdapterScope(const AdapterScope&) = delete;
  AdapterScope& operator=(const AdapterScope&) = delete;

 private:
  Model& model_;
  bool enabled_ = true;
  std::vector<Tensor> kept_;
};

// While it lives a model with adapters is in training: their dropout draws.
class DropoutScope {
 public:
  DropoutScope(Model& model, const std::optional<DropoutStream>& draws);
  ~DropoutScope();
  DropoutScope(const DropoutScope&) = delete;
  DropoutScope& operator=(const DropoutScope&) = delete;

 private:
  Lora* lora_;
};

}  // namespace hone
