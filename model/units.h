#pragma once
// Units: the parts of a model that parallel training gathers, reduces and updates one by one. The front unit holds the
// embeddings, each layer is a unit, the back unit holds the final norm and lm_head. A tied lm_head is the embedding and
// belongs to the front unit.
#include <vector>

#include "core/device/device.h"

namespace hone {

class Model;
struct Param;

struct ElementRange {
  int64_t first = 0, last = 0;
  int64_t size() const { return last - first; }
};

// Ranges include the gaps that align parameters. An empty range has size 0.
struct Unit {
  std::vector<Param*> params;           // of flat memory, in its order; adapters last
  ElementRange values, adapter_values;  // of Model::flat_values()
  std::vector<Param*> trained;          // those with `trainable`
  ElementRange trained_values;          // of flat_values(): from the first of them to the last, without adapters
  ElementRange grads;                   // the same of Model::flat_grads(), with adapters
  // Each element of the gradients gets one addition in a backward pass (kernels/adds_once.h).
  bool adds_once = false;
};

// Front, layers 0, 1, ..., back. The model is allocated; its frozen parameters are known. device: where passes run (on
// meta the device that is planned for).
std::vector<Unit> units_of(Model& model, DeviceKind device);

enum class Direction : uint8_t { forward, backward };

// Called by training passes (model/forward.h) at the border of each unit. The default does nothing.
//
// A pass calls, with n = number of units - 1:
//   forward    before(0), for each layer l: before(l), after(l), then before(n)
//   backward   before(n), after before(0) if back_adds_to_front(); after(n); for each layer, last first: before(l),
//   after(l);
//              before(0) unless it was called; after(0)
// Values of the front and the back unit are read from before(forward) until after(backward): lm_head runs between the
// two passes.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  // Work queued from now on reads the unit's values; in a backward pass it also contributes to the unit's gradients.
  virtual void before(Context&, size_t /*unit*/, Direction) {}
  // All work on the unit is queued. In a backward pass its gradients are complete behind that work.
  virtual void after(Context&, size_t /*unit*/, Direction) {}
};

}  // namespace hone
