// The trainer's recipe keys.
#include <optional>

#include "core/base/suggest.h"
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
    "packed tokens of one forward and backward pass; a step runs as many passes as its samples need. A longer sample "
    "is "
    "a pass of its own");
  f("max_grad_norm", max_grad_norm,
    "upper bound of the gradient's global norm; larger gradients are scaled down; 0 = no clip");
  f("z_loss", z_loss, "weight of the squared log-sum-exp of the logits in the loss; 0 = none");
  f.alias_value("recompute", "block", "full");
  f("recompute", recompute,
    "activations that backward recomputes: none | selective: outputs of norms and activation functions | full: a "
    "whole layer from its input");
  f.require("micro_batch_tokens", micro_batch_tokens > 0, "micro_batch_tokens must be positive");
  f.require("max_grad_norm", max_grad_norm >= 0, "max_grad_norm must be 0 or more");
  f.require("z_loss", z_loss >= 0, "z_loss must be 0 or more");
  f.require("recompute", recompute_of(recompute).has_value(), "recompute must be none, selective or full");
  optimizer.fields(f, "optimizer", join(optimizers().names(), " | ").c_str());
  f("optimizer_from", optimizer_from,
    "previous: the optimizer goes on with the state and the step count of the checkpoint that the stage starts from, "
    "the previous stage's or model.path; empty = it starts anew");
  f("groups", groups, "parameter groups; the first one that matches a tensor's name takes it");
  f.require("optimizer_from", optimizer_from.empty() || optimizer_from == "previous",
            concat("optimizer_from is '", optimizer_from, "': it must be previous, or empty"));
}

Recompute TrainerConfig::recomputation() const { return recompute_of(recompute).value(); }

}  // namespace hone
