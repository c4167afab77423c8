#include <optional>

#include "train/trainer.h"

namespace hone {

static std::optional<Recompute> recompute_of(const std::string& name) {
  if (name == "none") return Recompute::none;
  if (name == "selective") return Recompute::selective;
  if (name == "block") return Recompute::full;
  return std::nullopt;
}

void TrainerConfig::fields(Fields& f) {
  f("micro_batch_tokens", micro_batch_tokens,
    "packed tokens of one forward and backward pass; a step's samples are cut into as many as needed, and a longer "
    "sample is a pass of its own");
  f("max_grad_norm", max_grad_norm, "clips the gradient's global norm; 0: no clip");
  f("z_loss", z_loss, "weight of the squared log-sum-exp of the logits; 0: none");
  f("recompute", recompute,
    "none | selective: make outputs of norms and activations again in backward | block: keep a block's input alone and "
    "run its forward pass again");
  f("optimizer", optimizer, "adamw | sgd | rmsprop");
  f.require("micro_batch_tokens", micro_batch_tokens > 0, "micro_batch_tokens must be positive");
  f.require("max_grad_norm", max_grad_norm >= 0, "max_grad_norm must be 0 or more");
  f.require("z_loss", z_loss >= 0, "z_loss must be 0 or more");
  f.require("recompute", recompute_of(recompute).has_value(), "recompute must be none, selective or block");
  f.require("optimizer", optimizers().contains(optimizer), optimizers().unknown(optimizer));
  if (f.reading() || !optimizer_settings) optimizer_settings = optimizers().at(optimizer)();
  optimizer_settings->fields(f);
}

Recompute TrainerConfig::recomputation() const { return recompute_of(recompute).value(); }

}  // namespace hone
