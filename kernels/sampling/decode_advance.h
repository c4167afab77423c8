#pragma once
// Advances a decode batch by one token without the host.
#include "kernels/op.h"

namespace hone {

// The state of S sequences whose layers use K block tables; i32 [S] each but slots and params.
struct DecodeState {
  Tensor tokens;     // the next input token
  Tensor positions;  // its position
  Tensor slots;      // [K * S]: KV slots of its keys and values (kernels/rope/qkv.h), table by table
  Tensor lengths;    // keys in the cache once its own is written
  Tensor active;     // 0: a padding row, which stays as it is
  Tensor params;     // u8 [S * sizeof(RowSamplingParams)] (kernels/sampling/sample.h)
  static constexpr auto access = op_access(updated(&DecodeState::tokens, &DecodeState::positions, &DecodeState::slots,
                                                   &DecodeState::lengths, &DecodeState::params),
                                           read(&DecodeState::active));
};

// Sends the sampled tokens of each pass to the host without a copy in the queue: drawn goes to row turn % R of the
// ring, and turn goes up by one.
struct HostRing {
  Tensor drawn;  // [n] i32
  Tensor ring;   // [R, n] i32 in memory of MemoryKind::pinned
  Tensor turn;   // [1] i32
  static constexpr auto access = op_access(updated(&HostRing::ring, &HostRing::turn), read(&HostRing::drawn));
};

// Each active row gets its next token from ids. Its position, length and sampling position go up by one; its slots are
// the slots of the new position. An id below 0 (a row without a distribution) becomes token 0.
struct DecodeAdvance {
  DecodeState state;
  Tensor ids;          // [S] i32: the sampled tokens
  Tensor block_table;  // [K * S, max_blocks] i32, table by table; holds the blocks of each new position
  int64_t block_size;
  HostRing results;
  static constexpr auto access = op_access(parts(&DecodeAdvance::state, &DecodeAdvance::results),
                                           read(&DecodeAdvance::ids, &DecodeAdvance::block_table));
};
inline constinit Op<DecodeAdvance> decode_advance{"decode_advance"};

}  // namespace hone
