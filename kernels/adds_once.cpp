#include "kernels/adds_once.h"

namespace hone {
namespace {

struct Declaration {
  const OpBase* op;
  DeviceKind device;
};

// Built before main(), then only read.
std::vector<Declaration>& declarations() {
  static std::vector<Declaration> all;
  return all;
}

}  // namespace

bool declare_adds_once(const OpBase& op, DeviceKind device) {
  declarations().push_back({&op, device});
  return true;
}

bool adds_once(const OpBase& op, DeviceKind device) {
  return std::ranges::any_of(declarations(),
                             [&](const Declaration& made) { return made.op == &op && made.device == device; });
}

std::vector<const OpBase*> ops_that_add_once(DeviceKind device) {
  std::vector<const OpBase*> out;
  for (const Declaration& made : declarations())
    if (made.device == device) out.push_back(made.op);
  return out;
}

}  // namespace hone
