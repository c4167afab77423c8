#include "train/stage.h"

#include "train/shown_sample.h"

namespace hone {

Registry<StageFactory>& stages() {
  static Registry<StageFactory> registry("stage");
  return registry;
}

std::vector<ShownSample> Stage::show(const ShowRequest&) const {
  fail("a stage of this kind has no samples to show; choose one that trains on rows");
}

}  // namespace hone
