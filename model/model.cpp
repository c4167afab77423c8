#include "model/model.h"

#include <algorithm>
#include <utility>

#include "model/lora.h"

namespace hone {
namespace {

// Zeroed memory of `size` elements, with the gaps between parameters: the optimizer reads them.
Tensor make_flat(Context& context, Buffer& bytes, DType dtype, int64_t size) {
  bytes = Buffer(context.device(), static_cast<size_t>(size) * size_of(dtype));
  const Tensor flat(bytes.data(), dtype, context.kind(), {size});
  context.zero(flat);
  return flat;
}
// The next parameter's part of the flat memory.
Tensor take_place(const Param& param, Tensor flat, int64_t& from) {
  const Tensor out(flat.rows(from, param.num_elements()).data, param.keep_f32 ? DType::f32 : flat.dtype, flat.device,
                   param.shape);
  from += param.padded_elements();
  return out;
}

}  // namespace

int64_t Param::num_elements() const {
  int64_t n = 1;
  for (const int64_t dim : shape) n *= dim;
  return n;
}

int64_t Param::padded_elements() const {
  const int64_t elements = keep_f32 ? 2 * num_elements() : num_elements();  // of bf16, or more than f32 needs
  return (elements + param_alignment - 1) / param_alignment * param_alignment;
}

std::vector<Param*> Model::params() {
  std::vector<Param*> out = base_params();
  if (lora_)
    for (Param* param : adapter_params()) out.push_back(param);
  return out;
}

std::unique_ptr<Model> Model::same_shape() const {
  std::unique_ptr<Model> out = make_model(config(), "model");
  if (lora_) out->add_lora(lora_->config);
  return out;
}

void Model::allocate(Context& context, DType dtype, bool gradients) {
  int64_t count = 0, trained = 0;
  for (const Param* param : params()) {
    HONE_CHECK(!param->keep_f32 || !param->trainable, "model: ", param->slices.front().name, " is f32 and trainable");
    count += param->padded_elements();
    if (param->trainable) trained += param->padded_elements();
  }
  values_ = make_flat(context, value_bytes_, dtype, count);
  grads_ = gradients ? make_flat(context, grad_bytes_, DType::f32, trained) : Tensor();
  int64_t at = 0, grad_at = 0;
  for (Param* param : params()) {
    param->value = take_place(*param, values_, at);
    param->grad = gradients && param->trainable ? take_place(*param, grads_, grad_at) : Tensor();
  }
  allocate_tables(context);
}

void Model::alias_values(Context& context, Model& other) {
  const std::vector<Param*> own = params(), others = other.params();
  HONE_CHECK(own.size() == others.size(), "model: ", own.size(), " parameters, the other has ", others.size());
  for (size_t i = 0; i < own.size(); ++i) {
    HONE_CHECK(own[i]->shape == others[i]->shape, "model: ", own[i]->slices.front().name,
               " has another shape in the other model");
    own[i]->value = others[i]->value;
  }
  values_ = other.values_;
  allocate_tables(context);
}

void Model::free_values(Context& context, std::span<Param* const> dropped) {
  HONE_CHECK(!grads_, "model: the values of a model with gradients cannot be freed");
  std::vector<Param*> kept = params();
  std::erase_if(kept, [&](Param* param) { return std::ranges::find(dropped, param) != dropped.end(); });
  int64_t count = 0, at = 0;
  for (const Param* param : kept) count += param->padded_elements();
  Buffer bytes;
  const Tensor flat = make_flat(context, bytes, dtype(), count);
  for (Param* param : kept) {
    const Tensor moved = take_place(*param, flat, at);
    context.copy(moved, param->value);
    param->value = moved;
  }
  Tensor none;
  none.dtype = dtype();
  for (Param* param : dropped) param->value = none;
  context.synchronize();  // queued work may still read the old memory
  value_bytes_ = std::move(bytes), values_ = flat;
}

void Model::drop_values(Context& context) {
  context.synchronize();  // queued work may still read them
  for (Param* param : params()) param->value.data = nullptr;
  values_.data = nullptr;
  value_bytes_ = Buffer();
}

void Model::restore_values(Context& context) {
  values_ = make_flat(context, value_bytes_, values_.dtype, values_.size());
  int64_t at = 0;
  for (Param* param : params()) param->value = take_place(*param, values_, at);
}

void Model::initialize(Context& context, uint64_t seed) {
  for (const Param* param : params()) initialize_param(context, *param, seed);
}

void Model::zero_grad(Context& context) {
  if (grads_) context.zero(grads_);
  for (const Param* param : params()) param->grad_undefined = false;
}

GradTarget Param::grad_target() const { return {grad, !std::exchange(grad_undefined, false)}; }

Tensor Param::grad_to_add_to(Context& context) const {
  if (std::exchange(grad_undefined, false)) context.zero(grad);
  return grad;
}

void Model::free_gradients(Context& context) {
  context.synchronize();  // queued work may still write them
  for (Param* param : params())
    if (param->grad) param->grad.data = nullptr;
  grads_.data = nullptr;
  grad_bytes_ = Buffer();
}

Tensor Model::trainable_values() {
  if (!lora_) return values_;
  int64_t count = 0;
  for (const Param* param : adapter_params()) count += param->padded_elements();
  return values_.rows(values_.dim(0) - count, count);
}

int64_t Model::num_params() {
  int64_t count = 0;
  for (const Param* param : params()) count += param->num_elements();
  return count;
}

Registry<Family>& families() {
  static Registry<Family> registry("model family");
  return registry;
}

std::unique_ptr<Model> make_model(const Json& config, std::string_view source) {
  const Json* type = config.is_object() ? config.find("model_type") : nullptr;
  HONE_CHECK(type && type->is_string(), source, ": no model_type; known model families: ", join(families().names()));
  const std::string& name = type->as_string();
  const Family* family = families().find(name);
  HONE_CHECK(family || !config.find("text_config"), source, ": model_type '", name,
             "' is not supported: its text model lies in text_config; give a folder of the text model alone (as "
             "gemma3_text is of gemma3)");
  HONE_CHECK(family, source, ": unknown model_type '", name, "'", suggestion(name, families().names()),
             "; known: ", join(families().names()));
  return (*family)(config, source);
}

void check_tokens(const Model& model, std::span<const int32_t> ids, std::string_view what) {
  const int64_t vocab_size = model.shape().vocab_size;
  for (size_t i = 0; i < ids.size(); ++i)
    HONE_CHECK(ids[i] >= 0 && ids[i] < vocab_size, what, ": token ", i, " has id ", ids[i],
               ", the model's ids are 0 to ", vocab_size - 1);
}

}  // namespace hone
