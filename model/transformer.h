#pragma once
// Transformer: a decoder-only model, a list of layers between embedding and lm_head. A family fills in the parts.
#include "model/attention.h"
#include "model/layer.h"

namespace hone {

struct TransformerParts {
  ModelShape shape{};
  Json config{};  // config.json
  // positions (learned) and lm_head: an empty shape means none. A tied lm_head is the embedding.
  Param embedding{}, positions{}, lm_head{};
  double embedding_scale = 1;  // factor on the embeddings, rounded to their dtype
  std::vector<DecoderLayer> layers{};
  Norm final_norm{};
  std::vector<std::shared_ptr<RopeTable>> ropes{};  // those that the layers read

  // module: the embedding's Hugging Face name.
  void make_embedding_and_lm_head(const std::string& module, bool tied, double init_std);
  // A table of rows that are read by index.
  Param table(const std::string& module, int64_t rows, double init_std) const;
};

std::unique_ptr<Model> make_transformer(TransformerParts parts);

}  // namespace hone
