#include "kernels/sampling/decode_advance.h"
#include "kernels/sampling/sample.h"
#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

TEST(DecodeAdvanceOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  constexpr int64_t S = 300, width = 5, block_size = 16, num_drawn = 4 * S + 1, passes = 3;
  Ids tokens = random_ids(S, 1000, 1), positions = random_ids(S, width * block_size - passes, 2), slots({2 * S}, -1),
      lengths = positions, live = random_ids(S, 2, 3), ids = random_ids(S, 1000, 4), table({2 * S, width});
  for (int64_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i * 7 % 1999);
  for (int64_t s = 0; s < S; s += 17) ids[s] = -1;
  std::vector<RowSamplingParams> params(S);
  for (size_t s = 0; s < params.size(); ++s) params[s] = {.temperature = 0.5f, .seed = s, .position = 1000 + s};
  Numbers<uint8_t> bytes({S * static_cast<int64_t>(sizeof(RowSamplingParams))});
  std::memcpy(bytes.tensor().data, params.data(), static_cast<size_t>(bytes.size()));

  Ids drawn = random_ids(num_drawn, 1000, 5), ring({2, num_drawn}, -1), turn({1});
  OnGpu tokens_there(tokens), positions_there(positions), slots_there(slots), lengths_there(lengths), turn_there(turn);
  Buffer drawn_there(gpu()->device(), drawn.tensor().bytes());
  const Buffer ring_there(gpu()->device(), static_cast<size_t>(ring.size()) * sizeof(int32_t), MemoryKind::pinned);
  std::memcpy(ring_there.data(), &ring[0], ring_there.size());
  const HostRing results_there{Tensor(drawn_there.data(), DType::i32, DeviceKind::cuda, {num_drawn}),
                               Tensor(ring_there.data(), DType::i32, DeviceKind::cuda, {2, num_drawn}), turn_there};
  Buffer params_there(gpu()->device(), static_cast<size_t>(bytes.size()));
  const Tensor params_tensor(params_there.data(), DType::u8, DeviceKind::cuda, {bytes.size()});
  gpu()->copy(params_tensor, bytes);
  const OnGpu live_there(live), ids_there(ids), table_there(table);
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t i = 0; i < num_drawn; ++i) drawn[i] += 1000;  // other numbers each time
    gpu()->copy(results_there.drawn, drawn);
    decode_advance(*gpu(),
                   {.state = {tokens_there, positions_there, slots_there, lengths_there, live_there, params_tensor},
                    .ids = ids_there,
                    .block_table = table_there,
                    .block_size = block_size,
                    .results = results_there});
    decode_advance(cpu(), {.state = {tokens, positions, slots, lengths, live, bytes},
                           .ids = ids,
                           .block_table = table,
                           .block_size = block_size,
                           .results = {drawn, ring, turn}});
    gpu()->synchronize();
    const auto* handed = static_cast<const int32_t*>(ring_there.data());
    for (int64_t i = 0; i < ring.size(); ++i) ASSERT_EQ(handed[i], ring[i]) << "pass " << pass << ", number " << i;
  }
  EXPECT_EQ(turn_there.read_ids()[0], passes);
  Numbers<uint8_t> back({bytes.size()});
  gpu()->copy(back, params_tensor);
  const Ids got[] = {tokens_there.read_ids(), positions_there.read_ids(), slots_there.read_ids(),
                     lengths_there.read_ids()};
  const Ids* wanted[] = {&tokens, &positions, &slots, &lengths};
  for (size_t column = 0; column < 4; ++column)
    for (int64_t s = 0; s < wanted[column]->size(); ++s)
      ASSERT_EQ(got[column][s], (*wanted[column])[s]) << column << " row " << s;
  for (int64_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], bytes[i]);
}

}  // namespace
}  // namespace hone::test
