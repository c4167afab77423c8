#pragma once
#include <memory>
#include <string>

#include "train/objective.h"

namespace hone {

// How a stage names its objective: `objective`, and the objective's own keys in the same table.
struct ObjectiveSpec {
  std::string objective;
  std::shared_ptr<Objective> made;  // while fields() reads
  void fields(Fields& f) {
    f("objective", objective, "what is optimised (hone list objectives)");
    if (f.reading()) {
      f.require("objective", objectives().contains(objective), objectives().unknown(objective));
      made = objectives().at(objective)();
    }
    if (!made) made = objectives().at(objective)();
    made->fields(f);
    if (f.reading()) made->prepare();
  }
  // Refuses, at the key's place, an objective that does not learn from what the stage trains on.
  void require_data(Fields& f, TrainingData data) const {
    const TrainingData needed = made->needs().data;
    f.require("objective", needed == data,
              concat(objective, " learns from ", describe(needed), ", and this stage trains on ", describe(data),
                     ": its objectives are ", join(objectives_for(data))));
  }
};

}  // namespace hone
