#include "kernels/decode.h"

#include "kernels/sample.h"
#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

TEST(DecodeAdvanceOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  constexpr int64_t S = 300, width = 5, block_size = 16;
  Ids tokens = random_ids(S, 1000, 1), positions = random_ids(S, width * block_size - 1, 2), slots({S}, -1), lengths = positions,
      live = random_ids(S, 2, 3), ids = random_ids(S, 1000, 4), table({S, width});
  for (int64_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i * 7 % 1999);
  for (int64_t s = 0; s < S; s += 17) ids[s] = -1;
  std::vector<SampleParams> params(S);
  for (size_t s = 0; s < params.size(); ++s) params[s] = {.temperature = 0.5f, .seed = s, .position = 1000 + s};
  Numbers<uint8_t> bytes({S * static_cast<int64_t>(sizeof(SampleParams))});
  std::memcpy(bytes.tensor().data, params.data(), static_cast<size_t>(bytes.size()));

  OnGpu tokens_there(tokens), positions_there(positions), slots_there(slots), lengths_there(lengths);
  Buffer params_there(gpu()->device(), static_cast<size_t>(bytes.size()));
  const Tensor params_tensor(params_there.data(), DType::u8, DeviceKind::cuda, {bytes.size()});
  gpu()->copy(params_tensor, bytes);
  decode_advance(*gpu(), {tokens_there, positions_there, slots_there, lengths_there, OnGpu(live), params_tensor}, OnGpu(ids), OnGpu(table),
                 block_size);
  decode_advance(cpu(), {tokens, positions, slots, lengths, live, bytes}, ids, table, block_size);
  Numbers<uint8_t> back({bytes.size()});
  gpu()->copy(back, params_tensor);
  const Ids got[] = {tokens_there.read_ids(), positions_there.read_ids(), slots_there.read_ids(), lengths_there.read_ids()};
  const Ids* wanted[] = {&tokens, &positions, &slots, &lengths};
  for (size_t column = 0; column < 4; ++column)
    for (int64_t s = 0; s < S; ++s) ASSERT_EQ(got[column][s], (*wanted[column])[s]) << column << " row " << s;
  for (int64_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], bytes[i]);
}

}  // namespace
}  // namespace hone::test
