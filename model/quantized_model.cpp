#include "model/quantized_model.h"

#include "kernels/quant/quantize.h"
#include "model/modules.h"

namespace hone {
namespace {

constexpr size_t alignment = 256;

size_t aligned(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// The maps of latent attention keep their dtype.
std::vector<Linear*> quantized_linears(Model& model) {
  std::vector<Linear*> out;
  for (Linear* linear : model.linear_modules())
    if (!linear->keeps_dtype) out.push_back(linear);
  return out;
}

}  // namespace

const Registry<QuantFormat>& quant_formats() {
  static const Registry<QuantFormat> registry = [] {
    Registry<QuantFormat> r("quantization");
    r.add("int8", QuantFormat::int8);
    r.add("fp8", QuantFormat::fp8);
    return r;
  }();
  return registry;
}

QuantizedModel::QuantizedModel(Context& context, Model& source, QuantFormat format, SourceWeights after)
    : context_(context), source_(source), format_(format), model_(source.same_shape()) {
  refresh();
  if (after == SourceWeights::keep) return;
  std::vector<Param*> copied;
  for (Linear* linear : quantized_linears(source)) copied.push_back(&linear->weight);
  source.free_values(context, copied);
  model_->alias_values(context, source);
}

void QuantizedModel::allocate() {
  model_->alias_values(context_, source_);
  size_t bytes = 0;
  const auto take = [&](DType dtype, std::span<const int64_t> dims) {
    Tensor out(memory_.data() ? static_cast<char*>(memory_.data()) + bytes : nullptr, dtype, context_.kind(), dims);
    bytes += aligned(out.bytes());
    return out;
  };
  const auto lay_out = [&] {
    bytes = 0;
    for (Linear* linear : quantized_linears(*model_))
      linear->quantized = {take(DType::u8, linear->weight.shape),
                           take(DType::f32, std::span(linear->weight.shape).first(1)), format_};
  };
  lay_out();
  memory_ = Buffer(context_.device(), bytes);
  lay_out();
}

void QuantizedModel::free_memory() {
  for (Linear* linear : quantized_linears(*model_)) {
    HONE_CHECK(linear->weight.value, "quantized model: its copies cannot be freed: the source weights were freed");
    linear->quantized = {};
  }
  memory_ = Buffer();
}

void QuantizedModel::refresh() {
  if (memory_.size() == 0) allocate();
  for (Linear* linear : quantized_linears(*model_)) {
    HONE_CHECK(linear->weight.value, "quantized model: cannot refresh: the source weights were freed");
    quantize_rows(context_, linear->quantized, linear->weight.value);
  }
}

}  // namespace hone
