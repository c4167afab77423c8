#pragma once
// The passes over logits that the CUDA bodies of the head are made of. A block of logits [rows, columns] begins at a
// column of the vocabulary that is a multiple of a chunk (kernels/lm_head/logsumexp.cuh); `rows` counts within the
// block of rows that the columns below belong to.
#include "kernels/lm_head/logprob.h"

namespace hone {

// Of a block of rows, [rows] f32 each but targets, which are i32.
struct HeadRows {
  Tensor targets;
  Tensor dlogp, dentropy;         // of the loss; dentropy may be empty
  Tensor logp, lse, entropy;      // entropy may be empty
  Tensor chunks, chunk_weighted;  // [rows, 2 * chunks] and [rows, chunks] or empty: a chunk's (max, sum), and weighted
  Tensor target_z;                // logit of the target, times the inverse temperature
  Tensor guess, scale;            // see head_exponentials
  float inv_temperature = 1, z_loss = 0;
};

// Writes the block's chunk sums, and the target_z of rows whose target is in it.
void head_sums(Context& context, const HeadRows& rows, Tensor logits, int64_t first);
// From all chunk sums: lse and, unless empty, logp and entropy.
void head_finish(Context& context, const HeadRows& rows, int64_t V);

// The logits' gradient, as numbers of its own dtype; lse (and entropy) are known.
void head_gradient(Context& context, const HeadRows& rows, Tensor gradient, Tensor logits, int64_t first);

// Where lse is not known yet: head_guess puts `guess` near it, head_exponentials makes the chunk sums and writes exp(z
// - guess), and head_scale, when all of a row is done, corrects the target's number and finds the `scale` by which the
// row is its gradient: dlogits = scale * numbers. It writes scaled = scale * hidden too. A row whose guess was bad, or
// that is next to no multiple of p, is computed anew, with scale 1.
void head_guess(Context& context, const HeadRows& rows, Tensor hidden, Tensor w);
void head_exponentials(Context& context, const HeadRows& rows, Tensor numbers, Tensor logits, int64_t first);
void head_scale(Context& context, const HeadRows& rows, Tensor numbers, Tensor scaled, Tensor hidden, Tensor w);

// The same for the whole vocabulary, from hidden and w: the logits stay in registers, with gemm_forward's bits. For
// bf16 matrices that the copy engine reads, of enough rows to be worth a tile and enough columns.
bool head_is_direct(const Tensor& hidden, const Tensor& w);
void head_sums_direct(Context& context, const HeadRows& rows, Tensor hidden, Tensor w);
void head_exponentials_direct(Context& context, const HeadRows& rows, Tensor numbers, Tensor hidden, Tensor w);
void head_gradient_direct(Context& context, const HeadRows& rows, Tensor gradient, Tensor hidden, Tensor w);

// y[r] = scale[r] * x[r], in y's dtype.
void scale_rows(Context& context, Tensor y, Tensor x, Tensor scale);

}  // namespace hone
