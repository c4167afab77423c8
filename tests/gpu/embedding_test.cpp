#include "kernels/elementwise/embedding.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

constexpr int32_t rows_of_table = 300;
constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 1},   {0, 8},     {100, 7},
                                                  {9, 130}, {2000, 64}, {70, 896}};  // ids, columns
constexpr DType dtypes[] = {DType::f32, DType::bf16};
constexpr int64_t gaps[] = {0, 3, 8};

TEST(EmbeddingOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [count, dim] : shapes)
    for (const DType dtype : dtypes)
      for (const int64_t gap : gaps) {
        const Floats table = rounded(normals({rows_of_table, dim}, 1, 1, gap), dtype);
        const Ids ids = random_ids(count, rows_of_table, 2);
        Floats expected = poisoned({count, dim});
        OnGpu y = OnGpu::poisoned({count, dim}, dtype, gap);
        for (const bool accumulate : {false, true}) {
          embedding_forward(cpu(), expected, table, ids, accumulate);
          embedding_forward(*gpu(), y, OnGpu(table, dtype), OnGpu(ids), accumulate);
          EXPECT_TRUE(close(y.read(), rounded(expected, dtype), {0, 0})) << count << " x " << dim << ", gap " << gap;
        }
      }
}

TEST(EmbeddingOnGpu, GradientAddsRepeatedIdsInOrder) {
  HONE_GPU_OR_SKIP();
  for (const auto& [count, dim] : shapes)
    for (const DType dtype : dtypes)
      for (const int64_t gap : gaps)
        for (const int32_t distinct : {1, 3, rows_of_table}) {
          const Floats dy = rounded(normals({count, dim}, 1, 1, gap), dtype);
          const Ids ids = random_ids(count, distinct, 2);
          Floats dtable = normals({rows_of_table, dim}, 3, 1, gap);
          OnGpu on_gpu(dtable);
          embedding_backward(cpu(), dtable, dy, ids);
          embedding_backward(*gpu(), on_gpu, OnGpu(dy, dtype), OnGpu(ids));
          EXPECT_TRUE(close(on_gpu.read(), dtable, {0, 0}))
              << count << " x " << dim << ", gap " << gap << ", " << distinct << " ids";
        }
}

TEST(EmbeddingOnGpu, GradientOfALongBatchAndALargeTable) {
  HONE_GPU_OR_SKIP();
  const int64_t count = 32768, dim = 8;
  const int32_t vocabulary = 151936;
  Ids ids = random_ids(count, vocabulary, 2);
  for (int64_t t = 0; t < count; t += 3) ids[t] = vocabulary - 1;
  const Floats dy = rounded(normals({count, dim}, 1), DType::bf16);
  Floats dtable({vocabulary, dim}, 0.5f);
  OnGpu on_gpu(dtable);
  embedding_backward(cpu(), dtable, dy, ids);
  embedding_backward(*gpu(), on_gpu, OnGpu(dy, DType::bf16), OnGpu(ids));
  EXPECT_TRUE(close(on_gpu.read(), dtable, {0, 0}));
}

TEST(EmbeddingOnGpu, IdsOutsideTheTableTouchNothing) {
  HONE_GPU_OR_SKIP();
  const Floats table = normals({4, 8}, 1), dy({3, 8}, 1.0f);
  Ids ids({3});
  ids[0] = -1, ids[1] = 2, ids[2] = 4;
  OnGpu y = OnGpu::poisoned({3, 8}), dtable(table), scattered = OnGpu::poisoned({4, 8});
  embedding_forward(*gpu(), y, OnGpu(table), OnGpu(ids), false);
  embedding_backward(*gpu(), dtable, OnGpu(dy), OnGpu(ids));
  scatter_rows(*gpu(), scattered, OnGpu(dy), OnGpu(ids));
  const Floats out = y.read(), sums = dtable.read(), placed = scattered.read();
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(std::isnan(out[i]) && std::isnan(out[16 + i]));
    EXPECT_EQ(out[8 + i], table[16 + i]);
  }
  for (int64_t i = 0; i < 32; ++i) {
    EXPECT_EQ(sums[i], table[i] + (i / 8 == 2 ? 1.0f : 0.0f));
    EXPECT_EQ(placed[i], i / 8 == 2 ? 1.0f : 0.0f);
  }
}

TEST(GatherAndScatterOnGpu, AgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [count, dim] : shapes)
    for (const DType dtype : dtypes)
      for (const int64_t gap : gaps) {
        if (!chosen()) continue;
        const int64_t all = 7 * count + 4;
        Ids rows({count});
        for (int64_t r = 0; r < count; ++r) rows[r] = static_cast<int32_t>((r * 5 + 3) % all);
        const Floats x = rounded(normals({all, dim}, 1, 1, gap), dtype),
                     picked = rounded(normals({count, dim}, 2), dtype);
        Floats y = poisoned({count, dim}), placed = poisoned({all, dim});
        gather_rows(cpu(), y, x, rows);
        scatter_rows(cpu(), placed, picked, rows);
        OnGpu y_gpu = OnGpu::poisoned({count, dim}, dtype, gap), placed_gpu = OnGpu::poisoned({all, dim}, dtype, gap);
        gather_rows(*gpu(), y_gpu, OnGpu(x, dtype), OnGpu(rows));
        EXPECT_TRUE(close(y_gpu.read(), y, {0, 0})) << count << " x " << dim << ", gap " << gap;
        scatter_rows(*gpu(), placed_gpu, OnGpu(picked, dtype), OnGpu(rows));
        EXPECT_TRUE(close(placed_gpu.read(), placed, {0, 0})) << count << " x " << dim << ", gap " << gap;
      }
}

}  // namespace
}  // namespace hone::test
