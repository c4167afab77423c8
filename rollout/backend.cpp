#include "rollout/backend.h"

namespace hone {

Metrics LocalBackend::metrics() {
  const EngineStats now = engine_.stats(), before = std::exchange(before_, now);
  const auto grown = [&](int64_t EngineStats::*count) { return static_cast<double>(now.*count - before.*count); };
  return {{"rollout/generated_tokens", grown(&EngineStats::generated_tokens)},
          {"rollout/prompt_tokens", grown(&EngineStats::prompt_tokens)},
          {"rollout/preemptions", grown(&EngineStats::preemptions)}};
}

}  // namespace hone
