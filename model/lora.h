#pragma once
// LoRA (Hu et al. 2021): a frozen matrix W [out, in] and a trained pair A [r, in], B [out, r]:
//
//   y = W x + scale * B (A dropout(x))
//
// A fused Linear has an adapter for each of its modules, or for some. The model with adapters switched off
// (AdapterScope) is the reference of DPO, PPO and GRPO, so these need no second model.
#include <filesystem>
#include <optional>
#include <span>

#include "model/lora_config.h"
#include "model/model.h"

namespace hone {

// The random stream of adapter dropout, with seed and module: optimizer step, and number of the step's tokens before
// this micro-batch. So dropout does not depend on how a step is split into micro-batches.
struct DropoutStream {
  int64_t step = 0, first_token = 0;
};

// Settings that all adapters of a model share.
struct Lora {
  LoraConfig config;           // target_modules as name_targets() returns them
  std::filesystem::path base;  // folder of the frozen weights, for adapter_config.json
  uint64_t seed = 0;           // of dropout
  bool enabled = true;
  std::optional<DropoutStream> draws;  // set during a training pass only
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

  // Adds to y [T, out].
  void forward(Context&, Tensor y, Tensor x) const;
  // Adds to dx [T, in].
  void backward_input(Context&, Tensor dx, Tensor dy) const;
  // Adds to the gradients of a and b.
  void backward_weight(Context&, Tensor dy, Tensor x) const;
  // The same for the matrices of experts (Linear::num_experts). The rows are sorted by expert, so the adapters of a
  // layer share their dropout, which depends on the micro-batch.
  void forward_experts(Context&, Tensor y, Tensor x, Tensor offsets) const;
  void backward_input_experts(Context&, Tensor dx, Tensor dy, Tensor offsets) const;
  void backward_weight_experts(Context&, Tensor dy, Tensor x, Tensor offsets) const;
  // weight [out, in] += scale * B A, summed in f32 and rounded once.
  void merge_into(Context&, Tensor weight) const;
  // For a module that multiplies by the merged weight: adds to the gradients of a and b from that of the weight,
  // dweight [out, in] f32. Such a module has no dropout, which would need the adapter's own input.
  void backward_merged(Context&, Tensor dweight) const;
  bool enabled() const { return shared_->enabled; }

  Param a;  // [slices * r, in]; initialized as in PEFT: uniform in +-1 / sqrt(in) (Kaiming with a = sqrt 5)
  Param b;  // [rows of the slices, r]; initialized to zero

 private:
  int64_t num_slices() const { return static_cast<int64_t>(slices_.size()); }
  Tensor rows_of(Tensor b_like, int64_t slice) const;
  // Of experts: A as [experts, parts * r, in], and B of one part (gate or up) as [experts, rows, r].
  int64_t num_parts(Tensor offsets) const { return num_slices() / (offsets.dim(0) - 1); }
  Tensor experts_a(Tensor a_like, Tensor offsets) const;
  Tensor experts_b(Tensor b_like, Tensor offsets, int64_t part) const;
  Tensor part_of(Tensor y, int64_t part) const;
  void drop_experts(Context&, Tensor to, Tensor from) const;
  Tensor input_of_experts(Context&, Tensor x) const;
  Tensor inner_experts(Context&, Tensor x, Tensor offsets) const;
  Tensor inner_gradient_experts(Context&, Tensor dy, Tensor offsets) const;
  // Slices that share one input: all, or one with dropout, since each slice then drops other elements.
  int64_t blocks_at_once() const { return shared_->drops() ? 1 : num_slices(); }
  // The input of a slice: x, or x with dropout, written to memory [T, in].
  Tensor input_of(Context&, Tensor memory, Tensor x, int64_t slice) const;
  Tensor input_memory(Context&, Tensor x) const;
  void drop(Context&, Tensor to, Tensor from, int64_t slice) const;
  void add_scale(Context&, Tensor x) const;
  // scale * A x and scale * B^T dy of all slices, [T, slices * r], in scratch.
  Tensor inner(Context&, Tensor x) const;
  Tensor inner_gradient(Context&, Tensor dy) const;

  const Lora* shared_;
  std::vector<Slice> slices_;
  std::vector<int64_t> b_rows_;  // first row of each slice in b
};

// Adds every adapter to its weight and removes the adapters. The result equals the model up to rounding and can be
// saved.
void merge_lora(Context& context, Model& model);

// During its lifetime the model's adapters have other values, or are switched off (the model then is its frozen base).
// Not while an engine runs captured graphs of this model.
class AdapterScope {
 public:
  // values: one per model.adapter_params(); they must outlive this object. Empty: adapters off.
  explicit AdapterScope(Model& model, std::span<const Tensor> values = {});
  ~AdapterScope();
  AdapterScope(const AdapterScope&) = delete;
  AdapterScope& operator=(const AdapterScope&) = delete;

 private:
  Model& model_;
  bool enabled_ = true;
  std::vector<Tensor> kept_;
};

// During its lifetime the model's adapters use dropout.
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
