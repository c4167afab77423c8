// CPU specification of decode_advance.
#include "kernels/sampling/decode_advance.h"

#include <algorithm>
#include <cstring>

#include "kernels/check_shape.h"
#include "kernels/sampling/sample.h"

namespace hone {
namespace {

void run(Context&, const DecodeAdvance& args) {
  const int64_t S = args.ids.dim(0);
  for (const auto& [name, column] : {std::pair<const char*, Tensor>{"tokens", args.state.tokens},
                                     {"positions", args.state.positions},
                                     {"lengths", args.state.lengths},
                                     {"active", args.state.active},
                                     {"ids", args.ids}})
    check_shape(decode_advance, name, column, {S}, DType::i32);
  check_shape(decode_advance, "params", args.state.params, {S * static_cast<int64_t>(sizeof(RowSamplingParams))},
              DType::u8);
  const int64_t K = S > 0 ? args.state.slots.dim(0) / S : 0;
  check_shape(decode_advance, "slots", args.state.slots, {K * S}, DType::i32);
  check_shape(decode_advance, "block_table", args.block_table, {K * S, args.block_table.dim(1)}, DType::i32);
  check_shape(decode_advance, "drawn", args.results.drawn, {args.results.drawn.dim(0)}, DType::i32);
  check_shape(decode_advance, "ring", args.results.ring, {args.results.ring.dim(0), args.results.drawn.dim(0)},
              DType::i32);
  check_shape(decode_advance, "turn", args.results.turn, {1}, DType::i32);
  for (int64_t s = 0; s < S; ++s) {
    if (!args.state.active.ptr<int32_t>()[s]) continue;
    args.state.tokens.ptr<int32_t>()[s] = std::max(args.ids.ptr<int32_t>()[s], 0);
    const int64_t position = ++args.state.positions.ptr<int32_t>()[s];
    ++args.state.lengths.ptr<int32_t>()[s];
    HONE_CHECK(position / args.block_size < args.block_table.dim(1), "decode_advance: row ", s, " is at position ",
               position, "; its block table holds ", args.block_table.dim(1) * args.block_size, " tokens");
    for (int64_t row = s; row < K * S; row += S)
      args.state.slots.ptr<int32_t>()[row] =
          static_cast<int32_t>(args.block_table.row<int32_t>(row)[position / args.block_size] * args.block_size +
                               position % args.block_size);
    uint8_t* const params = args.state.params.ptr<uint8_t>() + static_cast<size_t>(s) * sizeof(RowSamplingParams) +
                            offsetof(RowSamplingParams, position);
    uint64_t draw;
    std::memcpy(&draw, params, sizeof draw);
    ++draw;
    std::memcpy(params, &draw, sizeof draw);
  }
  int32_t& turn = *args.results.turn.ptr<int32_t>();
  std::memcpy(args.results.ring.row<int32_t>(turn % args.results.ring.dim(0)), args.results.drawn.data,
              args.results.drawn.bytes());
  ++turn;
}

[[maybe_unused]] const bool added = decode_advance.add({"specification", DeviceKind::cpu, run});

}  // namespace
}  // namespace hone
