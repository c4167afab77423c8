#pragma once
// A mixture of experts in place of a gated MLP: a router sends each token to k of E small gated MLPs and adds their
// outputs, weighted (Shazeer et al. 2017, Mixtral, OLMoE, Qwen3-MoE). A token's routing and output depend on the token
// alone: nothing is dropped unless a capacity is set, and a token's experts are added in the order of its choices.
#include <optional>

#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/clamped_glu.h"
#include "kernels/moe/router.h"
#include "model/config_reader.h"
#include "model/layer.h"

namespace hone {

// How the balance loss groups tokens.
enum class BalanceScope : uint8_t {
  sequence,     // per sequence and layer: equal for any split of a step into micro-batches and ranks
  micro_batch,  // over the tokens of a micro-batch and all layers at once, as transformers' load_balancing_loss_func
};

struct MoeConfig {
  int64_t num_experts = 0, num_choices = 0;  // E and k
  int64_t inner_size = 0;                    // of an expert's MLP
  int64_t num_layers = 1;                    // of the model that have experts; losses are means over them
  RouterRule rule;
  Activation activation = Activation::silu;
  std::optional<ClampedGlu> clamped{};  // if set, the experts compute it in place of `activation` (gpt-oss)
  bool biases = false;                  // the router and the matrices of the experts have biases
  double balance_coef = 0, z_coef = 0;  // factors of the balance loss and of the router's z-loss
  BalanceScope scope = BalanceScope::sequence;
  // Above 0: the choice of experts has a bias of its own, which each step moves by this rate towards even load
  // (DeepSeek-V3). The bias is saved with the model.
  double bias_rate = 0;
  bool has_choice_bias = false;  // there is such a bias even if no step moves it
  // Above 0: in training an expert takes at most factor * tokens * k / E choices of a micro-batch; later ones are
  // dropped. Results then depend on the micro-batch.
  double capacity_factor = 0;
};

// Reads the members of config.json that concern the losses and the capacity: router_aux_loss_coef, and hone's own
// router_z_loss_coef, router_aux_loss_scope, router_bias_update_rate, expert_capacity_factor. `coef`: the family's
// default of the first.
void read_balance(ConfigReader& config, MoeConfig& moe, double coef);

// The sums of one micro-batch over the layers, for BalanceScope::micro_batch. The layers of a model share one.
struct BalanceTotals;

class Moe final : public Sublayer {
 public:
  // The modules' Hugging Face names: the router is `router`.weight; expert e has `experts`.e.GATE, UP and DOWN. Biases
  // are called .bias in place of .weight.
  struct Names {
    std::string router, experts;
    const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
    // False: one MLP without a number, `experts`.GATE. It has no load to balance.
    bool numbered = true;
  };
  // index: of this layer among those with experts. totals: null unless the scope is micro_batch.
  Moe(const MoeConfig& config, const Names& names, int64_t width, double init_std, int64_t index = 0,
      std::shared_ptr<BalanceTotals> totals = nullptr);
  ~Moe() override;

  // An MLP for every token, beside the experts. Its output is added.
  void set_shared(std::unique_ptr<Sublayer> shared) { shared_ = std::move(shared); }

  void forward(Context&, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame&) const override;
  void backward(Context&, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const override;
  void add_to(ModuleList& list) override;
  std::optional<FusedExperts> fused_experts(const LayerPass&) const override;
  bool infer_with_norm(Context&, const LayerPass&, const RmsNormWeights& norm, Tensor out, Tensor x,
                       Tensor residual) const override;
  int64_t num_aux_sums() const override { return balances() ? 3 + config_.num_experts : 0; }
  void end_step(Context&, std::span<const double> sums, AuxReport& report) override;

 private:
  // The tensors of a pass, in the order of the frame.
  struct Routed {
    Tensor logits, experts, weights, order, places, offsets;
  };
  Routed take_routed(Frame& frame, int64_t num_tokens) const;
  static Routed restore_routed(Saved& saved);
  bool balances() const { return balances_; }
  void route(Context&, const LayerPass&, Tensor x, const Routed& to) const;
  // True if routed_experts computes the pass: nothing is kept or counted, and the experts have no adapters.
  bool is_fused(const LayerPass&) const;
  void infer(Context&, Tensor out, Tensor x, Tensor logits, Tensor residual) const;
  void add_sums(Context&, const LayerPass&, const Routed& of) const;
  void add_loss_gradient(Context&, const LayerPass&, Tensor dlogits, const Routed& of) const;
  // The activation of the experts, and its gradient: dboth may be `both`.
  void activate(Context&, Tensor activated, Tensor both) const;
  void activate_backward(Context&, Tensor dboth, Tensor dactivated, Tensor both) const;
  void backward_router(Context&, const LayerPass&, Tensor dx, Tensor dweights, Tensor x, const Routed& of) const;
  double per_layer(double coef) const { return coef / static_cast<double>(config_.num_layers); }
  void report_load(std::span<const double> load, double dropped, AuxReport& report) const;

  MoeConfig config_;
  Param router_, router_bias_;  // an empty shape means no bias
  Param bias_;                  // of the choice alone (bias_rate), f32; an empty shape means none
  Linear gate_up_, down_;
  std::unique_ptr<Sublayer> shared_;
  int64_t index_ = 0;
  bool balances_ = true;
  std::shared_ptr<BalanceTotals> totals_;
};

// The gate of a shared expert (Qwen2-MoE): sigmoid(gate . x) times a gated MLP. gate and mlp: Hugging Face names; the
// MLP's matrices are mlp.gate_proj, mlp.up_proj and mlp.down_proj.
std::unique_ptr<Sublayer> gated_shared_expert(const std::string& gate, const std::string& mlp, int64_t width,
                                              int64_t inner_size, double init_std, Activation activation);

std::shared_ptr<BalanceTotals> make_balance_totals(const MoeConfig& config);

}  // namespace hone
