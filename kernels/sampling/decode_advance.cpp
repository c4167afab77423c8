// CPU specification of decode_advance.
#include "kernels/sampling/decode_advance.h"

#include <algorithm>
#include <cstring>

#include "kernels/check_shape.h"
#include "kernels/sampling/sample.h"

namespace hone {
namespace {

void run(Context&, DecodeState state, Tensor ids, Tensor block_table, int64_t block_size, HostRing results) {
  const int64_t S = ids.dim(0);
  for (const auto& [name, column] : {std::pair<const char*, Tensor>{"tokens", state.tokens},
                                     {"positions", state.positions},
                                     {"slots", state.slots},
                                     {"lengths", state.lengths},
                                     {"live", state.active},
                                     {"ids", ids}})
    check_shape(decode_advance, name, column, {S}, DType::i32);
  check_shape(decode_advance, "params", state.params, {S * static_cast<int64_t>(sizeof(RowSamplingParams))}, DType::u8);
  check_shape(decode_advance, "block_table", block_table, {S, block_table.dim(1)}, DType::i32);
  check_shape(decode_advance, "drawn", results.drawn, {results.drawn.dim(0)}, DType::i32);
  check_shape(decode_advance, "ring", results.ring, {results.ring.dim(0), results.drawn.dim(0)}, DType::i32);
  check_shape(decode_advance, "turn", results.turn, {1}, DType::i32);
  for (int64_t s = 0; s < S; ++s) {
    if (!state.active.ptr<int32_t>()[s]) continue;
    state.tokens.ptr<int32_t>()[s] = std::max(ids.ptr<int32_t>()[s], 0);
    const int64_t position = ++state.positions.ptr<int32_t>()[s];
    ++state.lengths.ptr<int32_t>()[s];
    HONE_CHECK(position / block_size < block_table.dim(1), "decode_advance: row ", s, " is at position ", position,
               "; its block table holds ", block_table.dim(1) * block_size, " tokens");
    state.slots.ptr<int32_t>()[s] =
        static_cast<int32_t>(block_table.row<int32_t>(s)[position / block_size] * block_size + position % block_size);
    uint8_t* const params = state.params.ptr<uint8_t>() + static_cast<size_t>(s) * sizeof(RowSamplingParams) +
                            offsetof(RowSamplingParams, position);
    uint64_t draw;
    std::memcpy(&draw, params, sizeof draw);
    ++draw;
    std::memcpy(params, &draw, sizeof draw);
  }
  int32_t& turn = *results.turn.ptr<int32_t>();
  std::memcpy(results.ring.row<int32_t>(turn % results.ring.dim(0)), results.drawn.data, results.drawn.bytes());
  ++turn;
}

[[maybe_unused]] const bool added = decode_advance.add({"specification", DeviceKind::cpu, run});

}  // namespace
}  // namespace hone
