#include "rollout/backend.h"

#include <utility>

namespace hone {

Metrics LocalBackend::metrics() {
  const EngineStats now = engine_.stats(), before = std::exchange(before_, now);
  const auto increase = [&](int64_t EngineStats::*count) { return static_cast<double>(now.*count - before.*count); };
  return {{"rollout/generated_tokens", increase(&EngineStats::generated_tokens)},
          {"rollout/prompt_tokens", static_cast<double>(std::exchange(prompt_tokens_, 0))},
          {"rollout/preemptions", increase(&EngineStats::preemptions)}};
}

}  // namespace hone
