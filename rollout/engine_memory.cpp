#include "rollout/engine_memory.h"

namespace hone {

static std::unique_ptr<QuantizedModel> quantized_model(Context& context, Model& source, const EngineConfig& config) {
  if (config.quantization == "none") return nullptr;
  const auto after = config.owns_model ? QuantizedModel::SourceWeights::free : QuantizedModel::SourceWeights::keep;
  return std::make_unique<QuantizedModel>(context, source, quant_formats().at(config.quantization), after);
}

EngineMemory::EngineMemory(Context& context, Model& source, const Tokenizer* tokenizer, const EngineConfig& config)
    : context_(context),
      source_(source),
      owns_weights_(config.owns_model && config.quantization != "none"),
      quantized_(quantized_model(context, source, config)),
      cache_(context, config.kv_layout(source.kv_groups()), config.kv_dtype(source.lm_head().value.dtype),
             config.kv_block_size, config.kv_cache_tokens),
      passes_(std::in_place, context, model(), cache_.storage()),
      proposer_(proposers().at(config.speculative.method)({context, source, tokenizer, cache_, config.speculative})) {}

void EngineMemory::invalidate() {
  cache_.invalidate_prefix_cache();
  if (quantized_ && !free_) quantized_->refresh();
}

void EngineMemory::free() {
  if (free_) return;
  HONE_CHECK(!owns_weights_, "engine: it cannot rest: its quantized weights are the only ones (owns_model)");
  context_.synchronize();                                // queued passes may use the memory
  passes_.emplace(context_, model(), cache_.storage());  // without memory and captured graphs
  if (proposer_) proposer_->free_memory();
  cache_.free_memory();
  if (quantized_) quantized_->free_memory();
  free_ = true;
}

void EngineMemory::allocate() {
  if (!free_) return;
  cache_.allocate_memory();
  if (quantized_) quantized_->refresh();
  free_ = false;
}

}  // namespace hone
