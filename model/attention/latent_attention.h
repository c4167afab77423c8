#pragma once
// Multi-head latent attention (MLA, DeepSeek-V2): keys and values of all heads are maps of one latent row per token,
// and the KV cache keeps that row. Training, prefill and decoding use the absorbed form alone: queries are mapped to
// the latent space, and the mixed latents back to each head. So they have the same bits.
#include "model/attention.h"

namespace hone {

struct LatentShape {
  int64_t num_heads = 0;
  int64_t rank = 0;       // kv_lora_rank: latent numbers of a row
  int64_t nope_dim = 0;   // of a query head without positions
  int64_t rope_dim = 0;   // of a query head with positions, and of the row
  int64_t value_dim = 0;  // of a head's output
  int64_t row() const { return rank + rope_dim; }
  int64_t query() const { return nope_dim + rope_dim; }
  int64_t mapped() const { return nope_dim + value_dim; }  // rows of kv_up per head: keys, then values
};

struct LatentAttention final : Sublayer {
  std::optional<Linear> q_down;  // q_a_proj: queries go through a latent of their own; or none
  std::optional<Norm> q_norm;    // of that latent
  Linear q_up;                   // q_b_proj, or q_proj without q_down: [heads * query(), ...]
  Linear kv_down;                // kv_a_proj_with_mqa: [row(), width]
  Norm kv_norm;                  // of the latent numbers of the row
  Linear kv_up;                  // kv_b_proj: [heads * mapped(), rank]
  Linear output;                 // o_proj
  LatentShape heads;
  float scale = 0;                        // of q . k
  int64_t window = 0;                     // 0 = all earlier tokens
  bool interleaved = true;                // LatentRowsForward::interleaved
  std::shared_ptr<const RopeTable> rope;  // of rope_dim numbers
  size_t kv_layer = 0;                    // in KvView::layers; assign_kv_layers() sets it

  void forward(Context&, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame&) const override;
  void backward(Context&, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const override;
  void add_to(ModuleList& list) override;
  AttentionCost attention_cost() const override {
    return {.num_heads = heads.num_heads, .products = heads.num_heads * (heads.row() + heads.rank), .window = window};
  }
  KvPlace kv_place() override;

 private:
  // What a pass computes and leaves for backward. Empty after restore(), if backward computes it again: q_normed, rows,
  // q.
  struct Pass {
    Tensor q_latent, q_normed;  // [T, outputs of q_down], before and after q_norm; without q_down empty
    Tensor q_in;                // [T, H, query()], by q_up
    Tensor row_in;              // [T, row()], by kv_down
    Tensor rows;                // [T, row()]: row_in normed and rotated
    Tensor q;                   // [T, H, row()]: q_in in the latent space and rotated
    Tensor mixed, lse;          // [T, H, rank], [T, H] f32, of attention
    Tensor result;              // [T, H, value_dim], the input of `output`
    Norm::Stats q_stats, kv_stats;
  };
  Pass allocate(Frame& frame, int64_t num_tokens, DType dtype) const;
  Pass restore(Saved& saved) const;
  // Writes to.rows and to.q from to.row_in and to.q_in, and the new rows of the KV cache.
  void make_queries_and_rows(Context&, const LayerPass&, const Pass& to, Tensor kv_weight) const;
  // Writes to.mixed and, without a KV cache, to.lse.
  void attend(Context&, const LayerPass&, const Pass& to) const;
  // kv_up's weight with its adapter merged.
  Tensor kv_weight(Context&) const;
  // The maps of kv_up's weight or gradient: of keys [H, nope_dim, rank], of values [H, value_dim, rank].
  Tensor key_map(Tensor weight) const;
  Tensor value_map(Tensor weight) const;
  // Adds the gradient of kv_up or its adapter: keys' rows from the mapped queries, values' rows from mapped outputs.
  void add_kv_gradient(Context&, const Pass& of, Tensor dq, Tensor dresult) const;
  // Adds to dx the gradient through the queries.
  void backward_queries(Context&, Tensor dx, Tensor dq_in, Tensor x, const Pass& of) const;
  AttentionShape attention_shape(const LayerPass&) const;
};

}  // namespace hone
