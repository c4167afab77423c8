#include <optional>

#include "train/trainer.h"

namespace hone {

static std::optional<Recompute> recompute_of(const std::string& name) {
  if (name == "none") return Recompute::none;
  if (name == "selective") return Recompute::selective;
  if (name == "full") return Recompute::full;
  return std::nullopt;
}

void TrainerConfig::fields(Fields& f) {
  f("micro_batch_tokens", micro_batch_tokens,
    "packed tokens of one forward and backward pass; a step's samples are cut into as many as needed, and a longer "
    "sample is a pass of its own");
  f("max_grad_norm", max_grad_norm, "clips the gradient's global norm; 0: no clip");
  f("z_loss", z_loss, "weight of the squared log-sum-exp of the logits; 0: none");
  f.alias_value("recompute", "block", "full");
  f("recompute", recompute,
    "activations that backward recomputes: none | selective: outputs of norms and activation functions | full: a "
    "whole layer from its input");
  f.require("micro_batch_tokens", micro_batch_tokens > 0, "micro_batch_tokens must be positive");
  f.require("max_grad_norm", max_grad_norm >= 0, "max_grad_norm must be 0 or more");
  f.require("z_loss", z_loss >= 0, "z_loss must be 0 or more");
  f.require("recompute", recompute_of(recompute).has_value(), "recompute must be none, selective or full");
  optimizer.fields(f, "optimizer", "adamw | sgd | rmsprop");
}

Recompute TrainerConfig::recomputation() const { return recompute_of(recompute).value(); }

}  // namespace hone
