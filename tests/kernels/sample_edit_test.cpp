#include "kernels/sample_edit.h"

#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"

namespace hone::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

void edit(const Tensor& logits, std::vector<LogitEdit> edits) {
  edit_logits(cpu(), logits, Tensor(edits.data(), DType::u8, DeviceKind::cpu, {static_cast<int64_t>(edits.size() * sizeof(LogitEdit))}));
}

Floats three_rows() {
  Floats out({3, 4}, 0, 2);
  for (int64_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i) - 5;
  return out;
}

[[maybe_unused]] const bool added = op_cases().add("edit_logits", [] {
  Floats logits = three_rows(), expected = logits;
  edit(logits, {{.row = 2, .id = 3, .repetition = 2},                             // 6
                {.row = 0, .id = 1, .repetition = 2},                             // -4
                {.row = 0, .id = 0, .bias = 8, .repetition = 2, .minus = 0.25f},  // -5: positive once the bias is there
                {.row = 1, .id = 2, .minus = -1.5f},                              // 1
                {.row = 1, .id = 1, .bias = -infinity, .repetition = 3, .minus = 1}});
  expected[11] = 3, expected[1] = -8, expected[0] = 1.25f, expected[6] = 2.5f, expected[5] = -infinity;
  EXPECT_TRUE(close(logits, expected, {0, 0}));
});

TEST(EditLogits, NoEditsChangeNothing) {
  Floats logits = three_rows();
  edit(logits, {});
  EXPECT_TRUE(close(logits, three_rows(), {0, 0}));
}

TEST(EditLogits, PlacesOutsideAreErrors) {
  Floats logits = three_rows();
  EXPECT_THROW(edit(logits, {{.row = 3, .id = 0}}), Error);
  EXPECT_THROW(edit(logits, {{.row = 0, .id = 4}}), Error);
  EXPECT_THROW(edit(logits, {{.row = -1, .id = 0}}), Error);
  EXPECT_THROW(edit(logits, {{.row = 0, .id = 0, .repetition = 0}}), Error);
}

}  // namespace
}  // namespace hone::test
