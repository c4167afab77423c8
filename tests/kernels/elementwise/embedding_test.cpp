#include "kernels/elementwise/embedding.h"

#include "core/base/parallel_for.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"
#include "tests/support/npy.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr int32_t rows_of_table = 23;
constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {0, 8}, {100, 7}, {9, 130}};  // ids, columns

Ids distinct_ids(int64_t count) {
  Ids out({count});
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>((i * 7 + 3) % rows_of_table);
  return out;
}

[[maybe_unused]] const bool added = op_cases().add("embedding_forward", [] {
  for (const auto& [count, dim] : shapes) {
    const Floats table = normals({rows_of_table, dim}, 1, 1, 2);
    const Ids ids = random_ids(count, rows_of_table, 2);
    Floats y = poisoned({count, dim}, 3);
    expect_bodies_agree(embedding_forward, {&y}, {0, 0}, y, table, ids, false);
    expect_bodies_agree(embedding_forward, {&y}, {0, 0}, y, table, ids, true);
  }
}) && op_cases().add("embedding_backward", [] {
  for (const auto& [count, dim] : shapes) {
    Floats dtable = normals({rows_of_table, dim}, 1, 1, 2);
    expect_bodies_agree(embedding_backward, {&dtable}, {1e-6, 1e-6}, dtable, normals({count, dim}, 3, 1, 1),
                        random_ids(count, rows_of_table, 2));
  }
}) && op_cases().add("gather_rows", [] {
  for (const auto& [count, dim] : shapes) {
    Floats y = poisoned({count, dim}, 3);
    expect_bodies_agree(gather_rows, {&y}, {0, 0}, y, normals({rows_of_table, dim}, 1, 1, 2),
                        random_ids(count, rows_of_table, 2));
  }
}) && op_cases().add("scatter_rows", [] {
  for (const int64_t count : {0, 1, 11}) {
    Floats x = poisoned({rows_of_table, 5}, 3);
    expect_bodies_agree(scatter_rows, {&x}, {0, 0}, x, normals({count, 5}, 1, 1, 2), distinct_ids(count));
  }
});

}  // namespace

TEST(Embedding, TakesAndAddsRows) {
  const Floats table = normals({rows_of_table, 6}, 1);
  const Ids ids = random_ids(50, rows_of_table, 2);
  each_cpu_body(embedding_forward, [&](auto run, const std::string&) {
    Floats y = poisoned({50, 6});
    run(y, table, ids, false);
    for (int64_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], table[ids[i / 6] * 6 + i % 6]);
    run(y, table, ids, true);
    for (int64_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 2 * table[ids[i / 6] * 6 + i % 6]);
  });
}

TEST(Embedding, GradientAddsRepeatedIdsInOrderOnAnyNumberOfThreads) {
  const Floats dy = normals({300, 150}, 1);
  const Ids ids = random_ids(300, 3, 2);
  std::vector<float> expected(3 * 150);
  for (int64_t t = 0; t < 300; ++t)
    for (int64_t i = 0; i < 150; ++i) expected[static_cast<size_t>(ids[t] * 150 + i)] += dy[t * 150 + i];
  for (float& sum : expected) sum += 1;  // each sum is added once
  each_cpu_body(embedding_backward, [&](auto run, const std::string&) {
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      Floats dtable({3, 150}, 1.0f);
      run(dtable, dy, ids);
      EXPECT_TRUE(close(dtable, expected, {0, 0}));
    }
  });
}

TEST(Embedding, ScatterUndoesGather) {
  const Floats x = normals({rows_of_table, 5}, 1);
  const Ids rows = distinct_ids(9);
  Floats y = poisoned({9, 5}), back = poisoned({rows_of_table, 5});
  gather_rows(cpu(), y, x, rows);
  scatter_rows(cpu(), back, y, rows);
  int64_t kept = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    const bool taken = [&] {
      for (int64_t r = 0; r < 9; ++r)
        if (rows[r] == i / 5) return true;
      return false;
    }();
    ASSERT_EQ(back[i], taken ? x[i] : 0);
    kept += taken;
  }
  EXPECT_EQ(kept, 45);
}

TEST(Embedding, RefusesIdsOutsideTheTable) {
  const Floats table({4, 2});
  Ids ids({2});
  for (const int32_t bad : {-1, 4}) {
    ids[1] = bad;
    EXPECT_THROW(embedding_forward(cpu(), Floats({2, 2}), table, ids, false), Error);
    EXPECT_THROW(embedding_backward(cpu(), table, Floats({2, 2}), ids), Error);
    EXPECT_THROW(gather_rows(cpu(), Floats({2, 2}), table, ids), Error);
    EXPECT_THROW(scatter_rows(cpu(), table, Floats({2, 2}), ids), Error);
  }
}

TEST(Embedding, MatchesVllm) {
  HONE_SHARED_OR_SKIP(folder, "data/parity/vllmcpp_ops/embedding_bf16_32ids");
  const NpyArray stored = read_npy(folder / "table.npy"), chosen = read_npy(folder / "ids.npy"),
                 expected = read_npy(folder / "out.npy");
  Floats table({64, 32}), y = poisoned({32, 32});
  Ids ids({32});
  for (int64_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(stored.values[static_cast<size_t>(i)]);
  for (int64_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(chosen.values[static_cast<size_t>(i)]);
  embedding_forward(cpu(), y, table, ids, false);
  EXPECT_TRUE(close(y, expected.values, {0, 0}));
}

}  // namespace hone::test
