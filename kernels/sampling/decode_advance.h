#pragma once
// Moves a decoding batch on by one token without the host.
#include "kernels/op.h"

namespace hone {

// One token of each of S sequences; i32 [S] each. slots: where the token's keys and values go (kernels/rope/qkv.h);
// lengths: keys once they are there.
struct DecodeState {
  Tensor tokens, positions, slots, lengths;
  Tensor active;  // 0: the row only fills the batch up, and stays as it is
  Tensor params;  // u8 [S * sizeof(RowSamplingParams)] (kernels/sampling/sample.h)
};

// Where passes leave what they drew, without a copy behind them: drawn [n] i32 goes to row turn % R of ring [R, n] i32,
// memory of MemoryKind::pinned, and turn [1] i32 goes up by one.
struct HostRing {
  Tensor drawn, ring, turn;
};

// ids [S] i32 are what was drawn: each live row's next token; its position, length and draw position go up by one, its
// slot is that of the new position in block_table [S, max_layers] i32, which must hold it. A negative id (a row that
// had no distribution) becomes 0.
inline constinit Op<void(DecodeState state, Tensor ids, Tensor block_table, int64_t block_size, HostRing results)>
    decode_advance{"decode_advance"};

}  // namespace hone
