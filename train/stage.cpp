#include "train/stage.h"

namespace hone {

Registry<StageFactory>& stages() {
  static Registry<StageFactory> registry("stage");
  return registry;
}

}  // namespace hone
