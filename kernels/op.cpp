// The registry of ops and their bodies.
#include "kernels/op.h"

namespace hone {

static OpBase*& first_op() {
  static OpBase* first = nullptr;
  return first;
}

size_t OpBase::insert(BodyInfo info) {
  HONE_CHECK(count_ < max_bodies, "op ", name_, " has more than ", max_bodies, " bodies");
  if (count_ == 0) {
    next_ = first_op();
    first_op() = this;
  }
  const auto before = [](const BodyInfo& a, const BodyInfo& b) {
    return a.priority != b.priority ? a.priority > b.priority : std::string_view(a.name) < b.name;
  };
  const auto end = infos_.begin() + static_cast<std::ptrdiff_t>(count_++);
  const auto place = std::upper_bound(infos_.begin(), end, info, before);
  std::move_backward(place, end, end + 1);
  *place = info;
  return static_cast<size_t>(place - infos_.begin());
}

void OpBase::refuse(DeviceKind device) const {
  std::string known;
  for (const BodyInfo& body : bodies())
    known += concat(known.empty() ? "" : ", ", body.name, " (", name_of(body.device), ")");
  fail("op ", name_, ": no body for these arguments on ", name_of(device),
       "; bodies: ", known.empty() ? "none" : known);
}

std::vector<OpBase*> OpBase::all() {
  std::vector<OpBase*> out;
  for (OpBase* op = first_op(); op; op = op->next_) out.push_back(op);
  std::sort(out.begin(), out.end(), [](const OpBase* a, const OpBase* b) { return a->name() < b->name(); });
  return out;
}

}  // namespace hone
