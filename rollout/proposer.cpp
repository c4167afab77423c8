#include "rollout/proposer.h"

namespace hone {

Registry<ProposerFactory>& proposers() {
  static Registry<ProposerFactory> registry("speculative method");
  return registry;
}

namespace {
[[maybe_unused]] const bool added =
    proposers().add("none", [](const ProposerContext&) { return std::unique_ptr<Proposer>(); });
}  // namespace

}  // namespace hone
