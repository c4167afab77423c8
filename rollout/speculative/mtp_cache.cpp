#include "rollout/speculative/mtp_cache.h"

#include <algorithm>

#include "rollout/engine.h"

namespace hone {
namespace {

// A plane of hidden states for each module's input.
KvLayout output_layout(const Mtp& mtp, int64_t width) {
  const KvGroupShape group{
      .num_kv_heads = 1, .key_dim = width, .value_dim = 0, .planes = static_cast<int64_t>(mtp.size())};
  return one_table({&group, 1});
}

// A pass writes a token and its draft; the next one needs the token before them if it runs again.
int64_t ring_size(int64_t block_size, int64_t num_speculative_tokens) {
  return std::min(block_size, num_speculative_tokens + 2);
}

}  // namespace

const Mtp& mtp_for_drafts(const Model& model) {
  const Mtp* const mtp = mtp_of(model);
  HONE_CHECK(mtp, "speculative.method: \"mtp\" needs a model with modules of multi-token prediction ",
             "(num_nextn_predict_layers in its config.json), and this one has none; choose ngram or draft_model, or ",
             "train a model with modules (model.num_nextn_predict_layers)");
  return *mtp;
}

MtpCache::MtpCache(Context& context, const Model& model, KvCache& cache, int64_t num_speculative_tokens)
    : kv_(context, one_table(mtp_kv_groups(mtp_for_drafts(model))), model.dtype(), cache.block_size(),
          cache.num_blocks()),
      outputs_(context, output_layout(mtp_for_drafts(model), model.shape().hidden_size), model.dtype(),
               ring_size(cache.block_size(), num_speculative_tokens), cache.num_blocks()) {
  cache.attach_storage(kv_);
  cache.attach_storage(outputs_);
}

Tensor MtpCache::outputs(size_t k) const {
  const Tensor plane = outputs_.view().layers[k].k;
  return plane.view({plane.dim(0), plane.dim(2)});
}

size_t MtpCache::bytes(const Model& model, const EngineConfig& config) {
  const Mtp& mtp = mtp_for_drafts(model);
  const int64_t blocks = config.kv_cache_tokens / config.kv_block_size,
                ring = ring_size(config.kv_block_size, config.speculative.num_speculative_tokens);
  return kv_storage_bytes(one_table(mtp_kv_groups(mtp)), model.dtype(), config.kv_block_size, blocks) +
         kv_storage_bytes(output_layout(mtp, model.shape().hidden_size), model.dtype(), ring, blocks);
}

int32_t MtpCache::slot(const BlockTables& blocks, int64_t position) const {
  const int64_t size = kv_.block_size();
  return static_cast<int32_t>(blocks.tables.front()[static_cast<size_t>(position / size)] * size + position % size);
}

int32_t MtpCache::output_row(const BlockTables& blocks, int64_t position) const {
  const int64_t size = kv_.block_size(), ring = outputs_.block_size();
  const int32_t block = blocks.tables.front()[static_cast<size_t>(position / size)];
  return static_cast<int32_t>(block * ring + position % size % ring);
}

bool MtpCache::keeps_output(int64_t position, int64_t end) const {
  const int64_t size = kv_.block_size(), block_end = (position / size + 1) * size;
  return position + outputs_.block_size() >= std::min(end, block_end);
}

}  // namespace hone
