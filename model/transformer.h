#pragma once
// Transformer: a decoder-only model, a list of layers between embedding and lm_head. A family fills in the parts.
#include "model/attention.h"
#include "model/layer.h"
#include "model/mtp.h"

namespace hone {

struct TransformerParts {
  ModelShape shape{};
  Json config{};  // config.json
  // positions (learned) and lm_head: an empty shape means none. A tied lm_head is the embedding.
  Param embedding{}, positions{}, lm_head{};
  double embedding_scale = 1;  // factor on the embeddings, rounded to their dtype
  std::vector<DecoderLayer> layers{};
  Norm final_norm{};
  std::vector<MtpModule> mtp{};  // modules of multi-token prediction; their layers are numbered after the others
  double mtp_loss_coef = 0;
  std::vector<std::shared_ptr<RopeTable>> ropes{};     // those that the layers read
  std::vector<std::shared_ptr<SharedKv>> shared_kv{};  // of groups of layers that share keys and values, in order

  // module: the embedding's Hugging Face name.
  void make_embedding_and_lm_head(const std::string& module, bool tied, double init_std);
  // Of all layers, with those of multi-token prediction.
  int64_t num_all_layers() const { return static_cast<int64_t>(layers.size() + mtp.size()); }
  DecoderLayer& layer(int64_t index) {
    const auto at = static_cast<size_t>(index);
    return at < layers.size() ? layers[at] : mtp[at - layers.size()].layer;
  }

  // A table of rows that are read by index.
  Param table(const std::string& module, int64_t rows, double init_std) const;
};

std::unique_ptr<Model> make_transformer(TransformerParts parts);

}  // namespace hone
