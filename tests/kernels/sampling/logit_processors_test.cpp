#include "kernels/sampling/logit_processors.h"

#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"

namespace hone::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Rows of adjustments on the host.
struct Table {
  std::vector<RowPenalties> how;
  std::vector<LogitAdjustment> edits;  // the same number per row
  LogitAdjustments view() {
    const auto bytes = [](auto& items) {
      return Tensor(items.data(), DType::u8, DeviceKind::cpu, {static_cast<int64_t>(items.size() * sizeof(items[0]))});
    };
    return {bytes(edits), bytes(how)};
  }
};

Floats three_rows() {
  Floats out({3, 4}, 0, 2);
  for (int64_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i) - 5;
  return out;
}

Table three_edits() {
  return {{{.repetition_penalty = 2},
           {.frequency_penalty = -0.5, .presence_penalty = -1, .stops_after = 1},
           {.frequency_penalty = 0.25, .presence_penalty = 0.5, .repetition_penalty = 2}},
          {{.id = 1, .times = 0},             // -4
           {.id = 0, .times = 0, .bias = 8},  // -5: positive with the bias
           {.id = 2, .bias = 0.5f},           // -3: not penalized
           {.id = 2, .times = 1},             // 1
           {.id = 1, .times = 4, .bias = 3, .stops = 1},
           {},
           {.id = 3, .times = 2},  // 6
           {.id = 0, .stops = 1},  // 3: may be sampled
           {}}};
}

[[maybe_unused]] const bool applies = op_cases().add("apply_logit_processors", [] {
  Floats logits = three_rows(), expected = logits;
  apply_logit_processors(cpu(), logits, three_edits().view());
  expected[1] = -8, expected[0] = 1.5f, expected[2] = -2.5f;
  expected[6] = 2.5f, expected[5] = -infinity;
  expected[11] = 2;
  EXPECT_TRUE(close(logits, expected, {0, 0}));
});

[[maybe_unused]] const bool restores = op_cases().add("restore_logits", [] {
  Floats logits = three_rows();
  Table table = three_edits();
  apply_logit_processors(cpu(), logits, table.view());
  restore_logits(cpu(), logits, table.view());
  EXPECT_TRUE(close(logits, three_rows(), {0, 0}));
});

[[maybe_unused]] const bool counts = op_cases().add("count_sampled_tokens", [] {
  Table table = three_edits();
  for (RowPenalties& row : table.how) row.counts = 1;
  const auto draw = [&](std::vector<int32_t> ids) {
    count_sampled_tokens(cpu(), table.view(), host_view(std::span(ids)));
  };
  draw({0, 3, 0});
  EXPECT_EQ(table.edits[1].times, 1);
  EXPECT_EQ(table.edits[1].bias, 8);
  EXPECT_EQ(table.edits[5].id, 3);  // was unused
  EXPECT_EQ(table.edits[5].times, 1);
  EXPECT_EQ(table.edits[7].times, 1);  // not penalized before
  EXPECT_EQ(table.how[1].stops_after, 0);
  draw({-1, 3, 2});
  EXPECT_EQ(table.edits[5].times, 2);
  EXPECT_EQ(table.edits[8].id, 2);
  EXPECT_EQ(table.how[1].stops_after, 0);
  EXPECT_THROW(draw({3, 1, 1}), Error);  // no unused adjustment
});

TEST(EditLogits, RowsThatDoNotCountStayAsTheyAre) {
  Table table = three_edits();
  std::vector<int32_t> ids{0, 1, 2};
  count_sampled_tokens(cpu(), table.view(), host_view(std::span(ids)));
  EXPECT_EQ(table.edits[1].times, 0);
  EXPECT_EQ(table.edits[4].times, 4);
  EXPECT_EQ(table.edits[8].id, -1);
}

TEST(EditLogits, NoEditsChangeNothing) {
  Floats logits = three_rows();
  logits[4] = -0.0f;
  const Floats before = logits;
  Table none{std::vector<RowPenalties>(3), {}},
      idle{std::vector<RowPenalties>(3), {{}, {.id = 0}, {.id = 1, .stops = 1}}};
  for (Table* table : {&none, &idle}) apply_logit_processors(cpu(), logits, table->view());
  EXPECT_TRUE(close(logits, before, {0, 0}));
  EXPECT_TRUE(std::signbit(logits[4]));
}

TEST(EditLogits, WhatCannotBeIsAnError) {
  Floats logits = three_rows();
  const auto edit = [&](RowPenalties how, LogitAdjustment one) {
    apply_logit_processors(cpu(), logits, Table{{how, how, how}, {one, one, one}}.view());
  };
  EXPECT_THROW(edit({}, {.id = 4}), Error);
  EXPECT_THROW(edit({.repetition_penalty = 0}, {.id = 0}), Error);
  EXPECT_THROW(apply_logit_processors(cpu(), logits, Table{{{}, {}}, {}}.view()), Error);
  EXPECT_THROW(apply_logit_processors(cpu(), logits, Table{{{}, {}, {}}, {{}, {}}}.view()), Error);
}

}  // namespace
}  // namespace hone::test
