#pragma once
// MtpCache: what the proposer "mtp" keeps of the sequences, under the block numbers of the engine's KV cache. Blocks
// that are shared, copied or found in the prefix cache are thus valid for the modules, too.
//
// Module k = 1, 2, ... joins the token at position p with the output of module k - 1 at position p - 1 (module 0 is the
// model), and its keys and values lie in the slot of position p. So what a block holds depends on the tokens up to its
// end alone. The first k slots of a sequence are unused: key i of module k is that of position i + k. Attention reads
// them through a table of single slots.
//
// The pass that computes position p needs the outputs at position p - 1, of the pass before. Each block keeps those of
// its last computed tokens, in a ring by position. The ring is longer than a draft, so that rejected tokens do not
// overwrite what the next pass needs.
#include "rollout/kv/kv_cache.h"
#include "rollout/speculative/mtp_inference.h"

namespace hone {

struct EngineConfig;

// The modules that propose tokens. Throws an Error that names the key if the model has none.
const Mtp& mtp_for_drafts(const Model& model);

class MtpCache {
 public:
  // Attaches its memory to the engine's cache.
  MtpCache(Context& context, const Model& model, KvCache& cache, int64_t num_speculative_tokens);
  MtpCache(const MtpCache&) = delete;
  MtpCache& operator=(const MtpCache&) = delete;
  // Its memory with an engine's cache of these settings.
  static size_t bytes(const Model& model, const EngineConfig& config);

  const KvStorage& kv() const { return kv_; }
  // The slot of a position, and the row of outputs() that belongs to it.
  int32_t slot(const BlockTables& blocks, int64_t position) const;
  int32_t output_row(const BlockTables& blocks, int64_t position) const;
  // True if no other position of (position, end) has the same row of outputs().
  bool keeps_output(int64_t position, int64_t end) const;
  // [rows, D]: outputs of module k, k = 0 (the model) to one less than there are modules.
  Tensor outputs(size_t k) const;

 private:
  KvStorage kv_, outputs_;
};

}  // namespace hone
