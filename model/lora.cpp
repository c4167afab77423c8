#include "model/lora.h"

#include <cmath>

#include "core/base/rng.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/dropout.h"
#include "kernels/gemm/gemm.h"
#include "model/modules.h"

namespace hone {

// The names of the modules that can have adapters, in the model's order.
static std::vector<std::string> lora_modules(Model& model) {
  constexpr std::string_view end = ".weight";
  std::vector<std::string> out;
  for (const Linear* linear : model.linear_modules())
    for (const Param::Slice& slice : linear->weight.slices)
      out.push_back(slice.name.substr(0, slice.name.size() - end.size()));
  return out;
}

LoraLayer::LoraLayer(const Lora& shared, std::vector<Slice> slices, int64_t inputs)
    : shared_(&shared), slices_(std::move(slices)) {
  const int64_t r = shared.config.r;
  int64_t outputs = 0;
  for (const Slice& slice : slices_) {
    const std::string name = "base_model.model." + slice.module;
    a.slices.push_back({name + ".lora_A.weight", r});
    b.slices.push_back({name + ".lora_B.weight", slice.rows});
    b_rows_.push_back(outputs);
    outputs += slice.rows;
  }
  a.shape = {num_slices() * r, inputs};
  a.init_uniform = 1 / std::sqrt(static_cast<double>(inputs));
  b.shape = {outputs, r};
}

Tensor LoraLayer::rows_of(Tensor b_like, int64_t slice) const {
  const auto i = static_cast<size_t>(slice);
  return b_like.rows(b_rows_[i], slices_[i].rows);
}

void LoraLayer::drop(Context& context, Tensor to, Tensor from, int64_t slice) const {
  const double rate = shared_->config.lora_dropout;
  const std::string stream =
      concat("lora_dropout/", shared_->draws->step, "/", slices_[static_cast<size_t>(slice)].module);
  dropout(context, to, from, static_cast<float>(1 / (1 - rate)),
          {.rate = static_cast<float>(rate),
           .seed = shared_->seed,
           .stream = stream_of(stream.c_str()),
           .first_row = shared_->draws->first_token});
}

Tensor LoraLayer::input_memory(Context& context, Tensor x) const {
  return shared_->drops() ? context.scratch().take(x.dtype, x.dims()) : Tensor();
}

Tensor LoraLayer::input_of(Context& context, Tensor memory, Tensor x, int64_t slice) const {
  if (!shared_->drops()) return x;
  drop(context, memory, x, slice);
  return memory;
}

void LoraLayer::add_scale(Context& context, Tensor x) const {
  if (const double scale = shared_->config.scale(); scale != 1) dropout(context, x, x, static_cast<float>(scale), {});
}

Tensor LoraLayer::inner(Context& context, Tensor x) const {
  const int64_t r = shared_->config.r, step = blocks_at_once();
  const Tensor out = context.scratch().take(x.dtype, {x.dim(0), num_slices() * r});
  const ScratchScope scope(context);
  const Tensor memory = input_memory(context, x);
  for (int64_t i = 0; i < num_slices(); i += step)
    gemm_forward(
        context,
        {.y = out.columns(i * r, step * r), .x = input_of(context, memory, x, i), .w = a.value.rows(i * r, step * r)});
  add_scale(context, out);
  return out;
}

Tensor LoraLayer::inner_gradient(Context& context, Tensor dy) const {
  const int64_t r = shared_->config.r;
  const Tensor out = context.scratch().take(dy.dtype, {dy.dim(0), num_slices() * r});
  for (int64_t i = 0; i < num_slices(); ++i) {
    const Slice& slice = slices_[static_cast<size_t>(i)];
    gemm_backward_input(context, out.columns(i * r, r), dy.columns(slice.first_row, slice.rows), rows_of(b.value, i));
  }
  add_scale(context, out);
  return out;
}

void LoraLayer::forward(Context& context, Tensor y, Tensor x) const {
  if (!shared_->enabled) return;
  const ScratchScope scope(context);
  const int64_t r = shared_->config.r;
  const Tensor hidden = inner(context, x);
  for (int64_t i = 0; i < num_slices(); ++i) {
    const Slice& slice = slices_[static_cast<size_t>(i)];
    const Tensor part = y.columns(slice.first_row, slice.rows);
    gemm_forward(context, {.y = part, .x = hidden.columns(i * r, r), .w = rows_of(b.value, i), .residual = part});
  }
}

void LoraLayer::backward_input(Context& context, Tensor dx, Tensor dy) const {
  if (!shared_->enabled) return;
  const ScratchScope scope(context);
  const int64_t r = shared_->config.r, step = blocks_at_once();
  const Tensor dhidden = inner_gradient(context, dy), part = context.scratch().take(dx.dtype, dx.dims());
  for (int64_t i = 0; i < num_slices(); i += step) {
    gemm_backward_input(context, part, dhidden.columns(i * r, step * r), a.value.rows(i * r, step * r));
    if (shared_->drops()) drop(context, part, part, i);
    add_into(context, dx, part);
  }
}

void LoraLayer::backward_weight(Context& context, Tensor dy, Tensor x) const {
  if (!shared_->enabled) return;
  const ScratchScope scope(context);
  const int64_t r = shared_->config.r, step = blocks_at_once();
  const Tensor hidden = inner(context, x), dhidden = inner_gradient(context, dy), memory = input_memory(context, x);
  for (int64_t i = 0; i < num_slices(); ++i) {
    const Slice& slice = slices_[static_cast<size_t>(i)];
    gemm_backward_weight(context, rows_of(b.grad, i), {}, dy.columns(slice.first_row, slice.rows),
                         hidden.columns(i * r, r));
  }
  for (int64_t i = 0; i < num_slices(); i += step)
    gemm_backward_weight(context, a.grad.rows(i * r, step * r), {}, dhidden.columns(i * r, step * r),
                         input_of(context, memory, x, i));
}

void LoraLayer::merge_into(Context& context, Tensor weight) const {
  const int64_t r = shared_->config.r;
  const auto in_f32 = [&](Tensor x) {
    const Tensor out = context.scratch().take(DType::f32, x.dims());
    cast(context, out, x);
    return out;
  };
  for (int64_t i = 0; i < num_slices(); ++i) {
    const ScratchScope scope(context);
    const Slice& slice = slices_[static_cast<size_t>(i)];
    const Tensor rows = weight.rows(slice.first_row, slice.rows), sum = in_f32(rows), up = in_f32(rows_of(b.value, i));
    const Tensor down = in_f32(a.value.rows(i * r, r)), product = context.scratch().take(DType::f32, rows.dims());
    add_scale(context, up);
    gemm_backward_input(context, product, up, down);
    add_into(context, sum, product);
    cast(context, rows, sum);
  }
}

// With W' = W + scale * B A: dB = scale * dW' A^T, dA = scale * B^T dW'. In f32: dweight is.
void LoraLayer::backward_merged(Context& context, Tensor dweight) const {
  const int64_t r = shared_->config.r;
  for (int64_t i = 0; i < num_slices(); ++i) {
    const ScratchScope scope(context);
    const Slice& slice = slices_[static_cast<size_t>(i)];
    const Tensor rows = dweight.rows(slice.first_row, slice.rows), b_rows = rows_of(b.value, i);
    const Tensor up = context.scratch().take(DType::f32, b_rows.dims()),
                 down = context.scratch().take(DType::f32, {r, dweight.dim(1)}),
                 part = context.scratch().take(DType::f32, up.dims());
    cast(context, up, b_rows);
    cast(context, down, a.value.rows(i * r, r));
    add_scale(context, up);
    add_scale(context, down);
    gemm_forward(context, {.y = part, .x = rows, .w = down});
    add_into(context, rows_of(b.grad, i), part);
    gemm_backward_weight(context, a.grad.rows(i * r, r), {}, up, rows);
  }
}

// All experts of a layer have adapters at the same matrices.
static void check_experts(const Linear& linear, const std::vector<bool>& chosen) {
  const size_t parts = chosen.size() / static_cast<size_t>(linear.num_experts);
  for (size_t i = 0; i < chosen.size(); ++i)
    HONE_CHECK(chosen[i] == chosen[i % parts], "lora: target_modules has ", chosen[i] ? "" : "not ",
               linear.weight.slices[i].name,
               ", unlike the layer's first expert; target all experts of a layer or none");
}

void Model::add_lora(const LoraConfig& config) {
  HONE_CHECK(config.r > 0, "lora: r is ", config.r, ", wants 1 or more");
  HONE_CHECK(!lora_, "lora: the model has adapters");
  const std::vector<std::string> modules = lora_modules(*this);
  const std::vector<bool> chosen = find_targets(config.target_modules, modules);
  lora_ = std::make_shared<Lora>();
  lora_->config = config;
  lora_->config.target_modules = name_targets(chosen, modules);
  for (Param* param : base_params()) param->trainable = false;
  size_t next = 0;
  for (Linear* linear : linear_modules()) {
    if (linear->num_experts > 0) {
      const auto first = chosen.begin() + static_cast<std::ptrdiff_t>(next);
      check_experts(*linear, {first, first + static_cast<std::ptrdiff_t>(linear->weight.slices.size())});
    }
    std::vector<LoraLayer::Slice> slices;
    int64_t row = 0;
    for (const Param::Slice& slice : linear->weight.slices) {
      if (chosen[next]) slices.push_back({modules[next], row, slice.rows});
      row += slice.rows, ++next;
    }
    if (slices.empty()) continue;
    linear->lora.emplace(*lora_, std::move(slices), linear->weight.shape[1]);
    linear->lora->a.active_share = linear->lora->b.active_share = linear->weight.active_share;
  }
}

std::vector<Param*> Model::adapter_params() {
  std::vector<Param*> out;
  for (Linear* linear : linear_modules())
    if (linear->lora) out.insert(out.end(), {&linear->lora->a, &linear->lora->b});
  return out;
}

void Model::remove_lora() {
  for (Linear* linear : linear_modules()) linear->lora.reset();
  for (Param* param : base_params()) param->trainable = true;
  lora_.reset();
}

void merge_lora(Context& context, Model& model) {
  HONE_CHECK(model.lora(), "lora: the model has no adapters to merge");
  for (const Linear* linear : model.linear_modules())
    if (linear->lora) linear->lora->merge_into(context, linear->weight.value);
  context.synchronize();  // a GEMM may prefetch its weights before earlier work of the stream is done (PDL)
  model.remove_lora();
}

AdapterScope::AdapterScope(Model& model, std::span<const Tensor> values) : model_(model) {
  HONE_CHECK(model.lora(), "lora: the model has no adapters to switch");
  enabled_ = model.lora()->enabled;
  model.lora()->enabled = !values.empty();
  if (values.empty()) return;
  const std::vector<Param*> params = model.adapter_params();
  HONE_CHECK(values.size() == params.size(), "lora: ", values.size(), " values for ", params.size(),
             " parameters of adapters");
  for (size_t i = 0; i < params.size(); ++i) {
    kept_.push_back(params[i]->value);
    params[i]->value = values[i];
  }
}

AdapterScope::~AdapterScope() {
  model_.lora()->enabled = enabled_;
  const std::vector<Param*> params = model_.adapter_params();
  for (size_t i = 0; i < kept_.size(); ++i) params[i]->value = kept_[i];
}

DropoutScope::DropoutScope(Model& model, const std::optional<DropoutStream>& draws) : lora_(model.lora()) {
  if (lora_) lora_->draws = draws;
}

DropoutScope::~DropoutScope() {
  if (lora_) lora_->draws.reset();
}

}  // namespace hone
