#include "kernels/sampling/decode_advance.h"

#include "kernels/sampling/sample.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

struct Rows {
  Ids tokens = Ids({3}, 5), positions = Ids({3}), slots = Ids({3}, -1), lengths = Ids({3}), live = Ids({3}, 1),
      table = Ids({3, 2}), drawn = Ids({4}), ring = Ids({2, 4}, -5), turn = Ids({1}, 3);
  Numbers<uint8_t> params = Numbers<uint8_t>({3 * static_cast<int64_t>(sizeof(RowSamplingParams))});
  Rows() {
    for (int64_t s = 0; s < 3; ++s) {
      positions[s] = static_cast<int32_t>(s + 2), lengths[s] = static_cast<int32_t>(s + 3);
      table[2 * s] = static_cast<int32_t>(10 + s), table[2 * s + 1] = static_cast<int32_t>(20 + s);
      set({.seed = 7, .position = static_cast<uint64_t>(100 + s)}, s);
    }
    live[1] = 0;
  }
  void set(const RowSamplingParams& one, int64_t s) {
    std::memcpy(&params[s * static_cast<int64_t>(sizeof one)], &one, sizeof one);
  }
  RowSamplingParams get(int64_t s) const {
    RowSamplingParams one;
    std::memcpy(&one, &params[s * static_cast<int64_t>(sizeof one)], sizeof one);
    return one;
  }
  DecodeState state() { return {tokens, positions, slots, lengths, live, params}; }
  HostRing results() { return {drawn, ring, turn}; }
};

// Two block tables of the same rows: the second one has other blocks.
void check_two_tables() {
  Rows rows;
  Ids ids({3}, 1), slots({6}, -1), table({6, 2});
  for (int64_t i = 0; i < 6; ++i) table[i] = rows.table[i], table[6 + i] = rows.table[i] + 100;
  DecodeState state = rows.state();
  state.slots = slots;
  expect_bodies_agree(decode_advance, {0, 0},
                      {.state = state, .ids = ids, .block_table = table, .block_size = 4, .results = rows.results()});
  const int32_t wanted[] = {10 * 4 + 3, -1, 22 * 4 + 1, 110 * 4 + 3, -1, 122 * 4 + 1};
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(slots[i], wanted[i]) << i;
}

[[maybe_unused]] const bool advance_case = op_cases().add("decode_advance", [] {
  Rows rows;
  Ids ids({3});
  ids[0] = 41, ids[1] = 42, ids[2] = -1;
  for (int64_t i = 0; i < 4; ++i) rows.drawn[i] = static_cast<int32_t>(60 + i);
  expect_bodies_agree(
      decode_advance, {0, 0},
      {.state = rows.state(), .ids = ids, .block_table = rows.table, .block_size = 4, .results = rows.results()});
  EXPECT_EQ(rows.tokens[0], 41);
  EXPECT_EQ(rows.positions[0], 3);
  EXPECT_EQ(rows.slots[0], 10 * 4 + 3);
  EXPECT_EQ(rows.lengths[0], 4);
  EXPECT_EQ(rows.get(0).position, 101u);
  EXPECT_EQ(rows.get(0).seed, 7u);
  EXPECT_EQ(rows.tokens[1], 5);  // not active
  EXPECT_EQ(rows.positions[1], 3);
  EXPECT_EQ(rows.slots[1], -1);
  EXPECT_EQ(rows.get(1).position, 101u);
  EXPECT_EQ(rows.tokens[2], 0);
  EXPECT_EQ(rows.positions[2], 5);
  EXPECT_EQ(rows.slots[2], 22 * 4 + 1);                                          // the next block
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(rows.ring[i], i < 4 ? -5 : 56 + i);  // turn 3 writes slot 3 % 2 = 1
  EXPECT_EQ(rows.turn[0], 4);
  check_two_tables();
});

}  // namespace

TEST(DecodeAdvance, APositionWithoutABlockIsAnError) {
  Rows rows;
  Ids ids({3});
  EXPECT_THROW(
      decode_advance(
          cpu(),
          {.state = rows.state(), .ids = ids, .block_table = rows.table, .block_size = 2, .results = rows.results()}),
      Error);
}

}  // namespace hone::test
