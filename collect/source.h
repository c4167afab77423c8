#pragma once
// CollectSource: samples and scores the completions of data rows. From a model's engine in this process or in workers,
// or from an OpenAI-compatible server.
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "collect/config.h"
#include "collect/row.h"
#include "rollout/backend.h"

namespace hone {

// A data row whose completions are missing. index: its number, which decides the completions of a model.
struct RowToCollect {
  int64_t index = 0;
  const Task* task = nullptr;
  // An earlier try with failures. A server is not asked again for completions that it gave.
  std::optional<CollectedRow> earlier = {};
};

class CollectSource {
 public:
  virtual ~CollectSource() = default;
  // Takes a row with all completions, in the order in which rows are finished, on the caller's thread.
  using TakeRow = std::function<void(CollectedRow row)>;
  // Collects the rows until all are taken, or until the process is asked to stop (core/base/interrupt.h): rows in
  // progress are then dropped.
  virtual void collect(std::span<const RowToCollect> rows, const TakeRow& take) = 0;
};

// From the engine of a model, or from workers. Arguments must outlive it. max_positions: of the model.
std::unique_ptr<CollectSource> model_source(GenerationBackend& backend, const Tokenizer& tokenizer,
                                            const CollectConfig& config, int64_t max_positions);
// From config.endpoint.
std::unique_ptr<CollectSource> endpoint_source(const CollectConfig& config);

}  // namespace hone
