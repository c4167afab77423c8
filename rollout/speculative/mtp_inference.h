#pragma once
// Modules of multi-token prediction in generation, where they propose draft tokens.
#include <vector>

#include "model/mtp.h"

namespace hone {

// What a KV cache of the modules must hold: one group of one plane for each. A module's layer has index k in
// KvView::layers if its group is out[k].
std::vector<KvGroupShape> mtp_kv_groups(const Mtp& mtp);

// Runs a module of the model without a tape, with the keys and values of pass.kv. hidden [T, D]: the input of lm_head
// for each row, by the model or by the module before; batch.tokens are those that the module embeds. Writes out [T, D],
// its own input of lm_head; out may be hidden.
void infer_mtp_module(Context& context, Model& model, size_t index, const LayerPass& pass, Tensor out, Tensor hidden);

}  // namespace hone
