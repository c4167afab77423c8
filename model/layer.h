#pragma once
// A decoder layer: two residual branches, the mixer's and the MLP's, each with the norms that the family has.
//
//   pre-norm   x + f(norm(x))            Llama, Qwen, GPT-2
//   post-norm  x + norm(f(x))            OLMo 2
//   both       x + norm(f(norm(x)))      Gemma 2 and 3
//   parallel   x + f(norm(x)) + g(norm(x))
#include <memory>
#include <optional>

#include "kernels/moe/routed_experts.h"
#include "model/kv_groups.h"
#include "model/modules.h"

namespace hone {

struct SelfAttention;  // model/attention.h

// Operands that the fused ops of inference take from an MLP (kernels/decoder_layer/decoder_layer.h).
struct FusedMlp {
  GemmWeights gate_up, down;
};
// From a mixture of experts (kernels/decoder_layer/moe_layer_tail.h).
struct FusedExperts {
  GemmWeights router;
  ExpertMatrices gate_up, down;
  RouterRule rule;
  int64_t num_choices = 1;
  Activation activation = Activation::silu;
  std::optional<ClampedGlu> clamped{};
};

// What the attention of a layer multiplies.
struct AttentionCost {
  int64_t num_heads = 0;
  int64_t products = 0;  // multiply-adds for a pair of query and key over all heads: q . k, and the weighted value
  int64_t window = 0;    // 0 = all earlier tokens
};

// A model that says so of each layer.
class AttentionCostSource {
 public:
  virtual ~AttentionCostSource() = default;
  virtual std::vector<AttentionCost> attention_costs() const = 0;
};

// Attention, a gated MLP, a mixture of experts: the part of a branch between its norms.
class Sublayer {
 public:
  virtual ~Sublayer() = default;
  // Writes out [T, D] = f(x [T, D]) + residual [T, D] (or empty; may be out). What backward needs is saved in the
  // frame.
  virtual void forward(Context&, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame&) const = 0;
  // Writes dx, the gradient of x (neither x nor dout), and adds to the parameters' gradients. With pass.aux.weights
  // both include the gradient of the sublayer's own loss terms. `saved` gives what forward saved, in the same order;
  // backward may overwrite it.
  virtual void backward(Context&, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const = 0;
  virtual void add_to(ModuleList&) = 0;
  // The input of the last matrix, from what forward saved with a tape that saves all: the heads' outputs side by side,
  // or an MLP's activation. Empty if there is no such matrix.
  virtual Tensor inner_activation(Saved&) const { return {}; }

  virtual AttentionCost attention_cost() const { return {}; }
  // What the sublayer keeps in a KV cache. A model numbers the places of its layers when it is made.
  virtual KvPlace kv_place() { return {}; }

  // Losses made inside the sublayer: the number of sums it adds to (AuxLoss::sums is its own range of them), and
  // what they say at the end of an optimizer step. All ranks call end_step() with the same sums after the weights were
  // updated; a router's bias may change there.
  virtual int64_t num_aux_sums() const { return 0; }
  virtual void end_step(Context&, std::span<const double> /*sums*/, AuxReport&) {}

  // What the fused ops of inference compute in its place; nothing by default. An adapter, an 8-bit copy or an option
  // that these ops lack leaves the sublayer to forward().
  virtual const SelfAttention* fused_attention(const LayerPass&) const { return nullptr; }
  virtual std::optional<FusedMlp> fused_mlp() const { return {}; }
  virtual std::optional<FusedExperts> fused_experts(const LayerPass&) const { return {}; }
  // Writes out = f(norm(x)) + residual in a pass of up to max_rows_norm_in_gemm rows that keeps nothing, if the
  // sublayer has ops that include the norm. Returns false and does nothing if it has none. out may be x and residual.
  virtual bool infer_with_norm(Context&, const LayerPass&, const RmsNormWeights& /*norm*/, Tensor /*out*/, Tensor /*x*/,
                               Tensor /*residual*/) const {
    return false;
  }
};

// out = residual + after(sublayer(before(x))). An absent norm is the identity.
struct ResidualBranch {
  std::optional<Norm> before;
  std::unique_ptr<Sublayer> sublayer;
  std::optional<Norm> after;

  // out may be the residual. Without pass.tape it works in scratch memory of the caller's scope.
  void forward(Context&, const LayerPass&, Tensor out, Tensor x, Tensor residual) const;
  struct Frames {
    Saved own, of_sublayer;
  };
  Frames restore(Tape& tape) const;
  // Adds to dx the gradient of x that passes through the branch. dout may be dx.
  void backward(Context&, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Frames saved) const;
  void add_to(ModuleList&);
};

// What a layer computes inside, for measures of how much its parts matter (model/prune/).
struct LayerActivations {
  Tensor attn_out;   // [T, heads * head_dim]
  Tensor activated;  // [T, intermediate_size]
};

class LayerActivationSource {
 public:
  virtual ~LayerActivationSource() = default;
  // Pops what Model::forward_layer(layer) left on a tape that saves all. The tensors are valid until the next push.
  virtual LayerActivations restore_activations(int64_t layer, Tape& tape) const = 0;
};

// mid = x + mixer(x); out = mid + mlp(mid), or out = mid + mlp(x) if the branches are parallel.
struct DecoderLayer {
  ResidualBranch mixer, mlp;
  bool parallel = false;
  std::optional<Norm> shared_norm{};  // of parallel branches: both read this norm of x (GPT-J, PaLM)

  // out may be x if pass.tape is null.
  void forward(Context&, const LayerPass&, Tensor out, Tensor x) const;
  // dx: dLoss/dout on entry, dLoss/dx on return.
  void backward(Context&, const LayerPass&, Tensor dx, Tensor x) const;
  void add_to(ModuleList&);
  int64_t num_aux_sums() const { return mixer.sublayer->num_aux_sums() + mlp.sublayer->num_aux_sums(); }
  void end_step(Context&, std::span<const double> sums, AuxReport&);
};

}  // namespace hone
