#pragma once
// What the families of Gemma share.
#include "model/llama_like.h"

namespace hone {

// Norms before and after each sublayer with weights around zero, GeGLU, embeddings times sqrt(hidden_size), scores of
// attention over sqrt(query_pre_attn_scalar), tied lm_head. The family sets windows and RoPE (reads_rope).
LlamaLikeConfig read_gemma(ConfigReader& config, const char* architecture, bool reads_rope);

}  // namespace hone
