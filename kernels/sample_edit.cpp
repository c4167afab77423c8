#include "kernels/sample_edit.h"

#include <cstring>

#include "kernels/check_shape.h"

namespace hone {
namespace {

void run(Context&, Tensor logits, Tensor edits) {
  constexpr auto size = static_cast<int64_t>(sizeof(LogitEdit));
  const int64_t S = logits.dim(0), V = logits.dim(1), E = edits.size() / size;
  check_shape(edit_logits, "logits", logits, {S, V});
  check_shape(edit_logits, "edits", edits, {E * size}, DType::u8);
  for (int64_t e = 0; e < E; ++e) {
    LogitEdit edit;
    std::memcpy(&edit, edits.ptr<uint8_t>() + e * size, sizeof edit);
    HONE_CHECK(edit.row >= 0 && edit.row < S && edit.id >= 0 && edit.id < V, "edit_logits: edit ", e, " is of row ", edit.row, ", id ", edit.id,
               "; the logits are [", S, ", ", V, "]");
    HONE_CHECK(edit.repetition > 0, "edit_logits: edit ", e, " has repetition ", edit.repetition, ", not above 0");
    float& logit = logits.row<float>(edit.row)[edit.id];
    const float z = logit + edit.bias, penalised = z > 0 ? z / edit.repetition : z * edit.repetition;
    logit = penalised - edit.minus;
  }
}

[[maybe_unused]] const bool added = edit_logits.add({"specification", DeviceKind::cpu, run});

}  // namespace
}  // namespace hone
