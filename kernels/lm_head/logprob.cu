// The lm_head ops on a GPU, in blocks of rows. Log-probs need the logits of a block of rows in parts of the vocabulary.
// Gradients need those of the full vocabulary, in the model's dtype, as an operand of two GEMMs. Scratch memory is
// bounded for any batch.
#include "kernels/check_shape.h"
#include "kernels/elementwise/softcap.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lm_head/internal.h"
#include "kernels/lm_head/logsumexp.cuh"

namespace hone {
namespace {

constexpr int64_t most_rows = 2048;  // each block of rows but the first reads dw, and each writes it
constexpr size_t most_gradient_bytes = size_t{600} << 20;  // dlogits of a block of rows
constexpr int64_t most_logits = int64_t{1} << 24;          // f32 logits of a part of the vocabulary
constexpr int64_t row_multiple = 128, column_multiple = 64;

struct Head {
  Tensor hidden, w, targets;
  float inv_temperature = 1, softcap = 0;
  int64_t R() const { return hidden.dim(0); }
  int64_t V() const { return w.dim(0); }
  int64_t D() const { return w.dim(1); }
  // The kernels that keep logits in registers know no soft-cap.
  bool is_direct(const Tensor& block) const { return softcap == 0 && head_is_direct(block, w); }
};

int64_t rounded_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

// Rows per block: equal blocks of at most about `most` rows, rounded up to row_multiple.
int64_t block_rows(int64_t R, int64_t most) {
  const int64_t blocks = (R + most - 1) / most;
  return std::min(R, rounded_up((R + blocks - 1) / blocks, row_multiple));
}

void check_head_cuda(const OpBase& op, const Head& head) {
  const DType dtype = head.hidden.dtype;
  HONE_CHECK(dtype == DType::f32 || dtype == DType::bf16, "op ", op.name(), ": dtype is ", name_of(dtype),
             "; it must be f32 or bf16 on cuda");
  check_shape(op, "w", head.w, {head.V(), head.D()}, dtype);
  check_shape(op, "hidden", head.hidden, {head.R(), head.D()}, dtype);
  check_shape(op, "targets", head.targets, {head.R()}, DType::i32);
  HONE_CHECK(head.inv_temperature > 0, op.name(), ": inverse temperature is ", head.inv_temperature,
             "; it must be positive");
  HONE_CHECK(head.V() > 0, op.name(), ": the vocabulary is empty");
}
void check_gradient_cuda(const OpBase& op, const Head& head, const Tensor& dhidden, const GradTarget& dw,
                         const LogprobGrad& grad) {
  check_shape(op, "dhidden", dhidden, {head.R(), head.D()},
              dhidden.dtype == DType::f32 ? DType::f32 : head.hidden.dtype);
  check_optional(op, "dw", dw.sum, {head.V(), head.D()});
  check_shape(op, "dlogp", grad.logp, {head.R()});
  check_optional(op, "dentropy", grad.entropy, {head.R()});
}

// Columns of a part of the vocabulary.
int64_t piece_columns(int64_t rows, int64_t V) {
  return std::min(rounded_up(V, column_multiple),
                  std::max(column_multiple, most_logits / rows / column_multiple * column_multiple));
}

// Calls visit(first column, logits of the rows) for each part of the vocabulary.
template <class Visit>
void for_each_piece(Context& context, const Head& head, const Tensor& hidden, Visit visit) {
  const ScratchScope scope(context);
  const Tensor& w = head.w;
  const int64_t V = w.dim(0), columns_at_once = piece_columns(hidden.dim(0), V);
  const Tensor memory = context.scratch().take(DType::f32, {hidden.dim(0), columns_at_once});
  for (int64_t first = 0; first < V; first += columns_at_once) {
    const Tensor logits = memory.columns(0, std::min(columns_at_once, V - first));
    GemmForward product{};
    product.y = logits;
    product.x = hidden;
    product.w = w.rows(first, logits.dim(1));
    gemm_forward(context, product);
    if (head.softcap > 0) softcap_forward(context, logits, head.softcap);
    visit(first, logits);
  }
}

// Scratch memory for the per-row results of one block.
HeadRows take_rows(Context& context, const Head& head, int64_t rows, bool entropy) {
  Arena& arena = context.scratch();
  const int64_t chunks = num_logsumexp_chunks(head.V());
  HeadRows out;
  out.chunks = arena.take(DType::f32, {rows, 2 * chunks});
  if (entropy) out.chunk_weighted = arena.take(DType::f32, {rows, chunks});
  out.target_z = arena.take(DType::f32, {rows});
  out.inv_temperature = head.inv_temperature;
  return out;
}

Tensor rows_of(const Tensor& x, int64_t first, int64_t count) { return x ? x.rows(first, count) : Tensor(); }

void forward(Context& context, const LogprobForward& args) {
  const Head head{args.hidden, args.w, args.targets, args.inv_temperature, args.softcap};
  const int64_t R = head.R();
  check_head_cuda(logprob_forward, head);
  check_shape(logprob_forward, "logp", args.logp, {R});
  check_shape(logprob_forward, "lse", args.lse, {R});
  check_optional(logprob_forward, "entropy", args.entropy, {R});
  check_optional(logprob_forward, "hit", args.hit, {R});
  if (R == 0) return;
  const ScratchScope scope(context);
  const int64_t step = block_rows(R, most_rows);
  HeadRows rows = take_rows(context, head, step, static_cast<bool>(args.entropy));
  for (int64_t first = 0; first < R; first += step) {
    const int64_t count = std::min(step, R - first);
    rows.targets = args.targets.rows(first, count);
    rows.logp = args.logp.rows(first, count);
    rows.lse = args.lse.rows(first, count);
    rows.entropy = rows_of(args.entropy, first, count);
    rows.hit = rows_of(args.hit, first, count);
    const Tensor block = args.hidden.rows(first, count);
    if (head.is_direct(block))
      lm_head_direct->sums(context, rows, block, args.w);
    else
      for_each_piece(context, head, block,
                     [&](int64_t column, const Tensor& logits) { head_sums(context, rows, logits, column); });
    head_finish(context, rows, head.V());
  }
}

// Rows per block if the gradients of the full vocabulary are stored.
int64_t gradient_rows(const Head& head) {
  const size_t bytes = static_cast<size_t>(rounded_up(head.V(), column_multiple)) * size_of(head.hidden.dtype);
  const int64_t most =
      std::max<int64_t>(1, static_cast<int64_t>(most_gradient_bytes / bytes) / row_multiple) * row_multiple;
  return block_rows(head.R(), std::min(most, most_rows));
}
// The columns past the vocabulary are zero: the GEMMs read 16 bytes at a time.
Tensor take_gradient(Context& context, const Head& head, int64_t rows) {
  const Tensor padded = context.scratch().take(head.hidden.dtype, {rows, rounded_up(head.V(), column_multiple)});
  const size_t element = size_of(padded.dtype), width = static_cast<size_t>(padded.dim(1)) * element,
               used = static_cast<size_t>(head.V()) * element;
  if (used < width)
    HONE_CUDA_CHECK(cudaMemset2DAsync(static_cast<char*>(padded.data) + used, width, 0, width - used,
                                      static_cast<size_t>(rows), cuda_stream(context)));
  return padded.columns(0, head.V());
}

void backward(Context& context, const LogprobBackward& args) {
  const Head head{args.hidden, args.w, args.targets, args.inv_temperature, args.softcap};
  const int64_t R = head.R();
  check_head_cuda(logprob_backward, head);
  check_gradient_cuda(logprob_backward, head, args.dhidden, args.dw, args.grad);
  check_shape(logprob_backward, "lse", args.lse, {R});
  check_optional(logprob_backward, "entropy", args.entropy, {R});
  HONE_CHECK(!args.grad.entropy || args.entropy, "logprob_backward: a gradient of the entropy needs forward's entropy");
  if (R == 0) return args.dw.add_nothing(context);
  const ScratchScope scope(context);
  const int64_t step = gradient_rows(head);
  const Tensor gradients = take_gradient(context, head, step);
  for (int64_t first = 0; first < R; first += step) {
    const int64_t count = std::min(step, R - first);
    HeadRows rows;
    rows.targets = args.targets.rows(first, count);
    rows.lse = args.lse.rows(first, count);
    rows.dlogp = args.grad.logp.rows(first, count);
    if (args.grad.entropy) {
      rows.dentropy = args.grad.entropy.rows(first, count);
      rows.entropy = args.entropy.rows(first, count);
    }
    rows.inv_temperature = args.inv_temperature;
    rows.z_loss = args.grad.z_loss;
    const Tensor block = args.hidden.rows(first, count), gradient = gradients.rows(0, count);
    if (head.is_direct(block))
      lm_head_direct->gradient(context, rows, gradient, block, args.w);
    else
      for_each_piece(context, head, block, [&](int64_t column, const Tensor& logits) {
        head_gradient(context, rows, gradient, logits, column);
        if (head.softcap > 0) softcap_backward(context, gradient.columns(column, logits.dim(1)), logits, head.softcap);
      });
    gemm_backward_input(context, args.dhidden.rows(first, count), gradient, args.w);
    if (args.dw) gemm_backward_weight(context, args.dw.of_block(first), {}, gradient, block);
  }
}

void fused(Context& context, const LogprobFused& args) {
  const Head head{args.hidden, args.w, args.targets, args.inv_temperature, args.softcap};
  const int64_t R = head.R(), D = head.D();
  check_head_cuda(logprob_fused, head);
  check_gradient_cuda(logprob_fused, head, args.dhidden, args.dw, args.grad);
  check_shape(logprob_fused, "logp", args.logp, {R});
  check_shape(logprob_fused, "lse", args.lse, {R});
  check_optional(logprob_fused, "hit", args.hit, {R});
  if (R == 0) return args.dw.add_nothing(context);
  const ScratchScope scope(context);
  Arena& arena = context.scratch();
  if (args.grad.entropy || args.softcap > 0) {  // the gradient is not a multiple of p
    const Tensor entropy = args.grad.entropy ? arena.take(DType::f32, {R}) : Tensor();
    forward(context, forward_of(args, entropy));
    return backward(context, backward_of(args, entropy));
  }
  const int64_t step = gradient_rows(head);
  const Tensor gradients = take_gradient(context, head, step);
  const Tensor unscaled = arena.take(DType::f32, {step, D}), scaled = arena.take(args.hidden.dtype, {step, D});
  HeadRows rows = take_rows(context, head, step, false);
  const Tensor guess = arena.take(DType::f32, {R});
  rows.targets = args.targets;
  rows.guess = guess;
  head_guess(context, rows, args.hidden, args.w);
  rows.scale = arena.take(DType::f32, {step});
  rows.z_loss = args.grad.z_loss;
  for (int64_t first = 0; first < R; first += step) {
    const int64_t count = std::min(step, R - first);
    const Tensor block = args.hidden.rows(first, count), gradient = gradients.rows(0, count),
                 scale = rows.scale.rows(0, count);
    rows.targets = args.targets.rows(first, count);
    rows.dlogp = args.grad.logp.rows(first, count);
    rows.logp = args.logp.rows(first, count);
    rows.lse = args.lse.rows(first, count);
    rows.hit = rows_of(args.hit, first, count);
    rows.guess = guess.rows(first, count);
    if (head.is_direct(block))
      lm_head_direct->exponentials(context, rows, gradient, block, args.w);
    else
      for_each_piece(context, head, block, [&](int64_t column, const Tensor& logits) {
        head_exponentials(context, rows, gradient, logits, column);
      });
    head_finish(context, rows, head.V());
    head_scale(context, rows, gradient, scaled.rows(0, count), block, args.w);
    gemm_backward_input(context, unscaled.rows(0, count), gradient, args.w);
    scale_rows(context, args.dhidden.rows(first, count), unscaled.rows(0, count), scale);
    if (args.dw) gemm_backward_weight(context, args.dw.of_block(first), {}, gradient, scaled.rows(0, count));
  }
}

// Scratch memory of the bodies, in bytes.
struct Scratch {
  Head head;
  int64_t step;

  size_t rows(bool entropy) const {
    return 4 * static_cast<size_t>(step * ((entropy ? 3 : 2) * num_logsumexp_chunks(head.V()) + 1));
  }
  size_t pieces() const {
    const bool direct = head.is_direct(head.hidden.rows(0, step));
    return direct ? 0 : 4 * static_cast<size_t>(step * piece_columns(step, head.V()));
  }
  size_t gradient() const {
    return static_cast<size_t>(step * rounded_up(head.V(), column_multiple)) * size_of(head.hidden.dtype);
  }
  size_t blocks_of_hidden() const { return static_cast<size_t>(step * head.D()) * (4 + size_of(head.hidden.dtype)); }
  // Workspace of the split GEMMs.
  size_t products() const { return std::min(size_t{64} << 20, 16 * static_cast<size_t>(step * head.D())); }
};

size_t forward_scratch(const LogprobForward& args) {
  if (args.hidden.dim(0) == 0) return 0;
  const Scratch of{{args.hidden, args.w, args.targets, 1, args.softcap}, block_rows(args.hidden.dim(0), most_rows)};
  return of.rows(static_cast<bool>(args.entropy)) + of.pieces();
}
size_t backward_scratch(const LogprobBackward& args) {
  if (args.hidden.dim(0) == 0) return 0;
  const Head head{args.hidden, args.w, args.targets, 1, args.softcap};
  const Scratch of{head, gradient_rows(head)};
  return of.gradient() + std::max(of.pieces(), of.products());
}
size_t fused_scratch(const LogprobFused& args) {
  if (args.hidden.dim(0) == 0) return 0;
  const size_t row = 4 * static_cast<size_t>(args.hidden.dim(0));
  if (args.grad.entropy || args.softcap > 0)
    return row + std::max(forward_scratch(forward_of(args, args.grad.entropy)),
                          backward_scratch(backward_of(args, args.grad.entropy)));
  const Head head{args.hidden, args.w, args.targets, 1, args.softcap};
  const Scratch of{head, gradient_rows(head)};
  return row + of.gradient() + of.blocks_of_hidden() + of.rows(false) + std::max(of.pieces(), of.products());
}

[[maybe_unused]] const bool added =
    logprob_forward.add({"row_blocks", DeviceKind::cuda, forward, 0, nullptr, forward_scratch}) &&
    logprob_backward.add({"row_blocks", DeviceKind::cuda, backward, 0, nullptr, backward_scratch}) &&
    logprob_fused.add({"row_blocks", DeviceKind::cuda, fused, 0, nullptr, fused_scratch});

}  // namespace
}  // namespace hone
