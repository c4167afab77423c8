// The lm_head of distillation on the CPU. The specification takes one row at a time. The faster body takes blocks of
// rows: two GEMMs for the logits of a block, two for its gradients.
#include "kernels/lm_head/distill.h"

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"
#include "kernels/cpu/features.h"
#include "kernels/elementwise/softcap.h"
#include "kernels/gemm/gemm.h"

namespace hone {

static void check_teacher(const Distill& args, int64_t R, int64_t V) {
  const int64_t Dt = args.teacher_w.dim(1);
  HONE_CHECK(args.teacher_w.dim(0) == V, "distill: the teacher's vocabulary has ", args.teacher_w.dim(0),
             " tokens, the student's has ", V, ": both must have the same tokenizer");
  check_shape(distill, "teacher_w", args.teacher_w, {V, Dt}, args.teacher_hidden.dtype);
  check_shape(distill, "teacher_hidden", args.teacher_hidden, {R, Dt}, args.teacher_hidden.dtype);
}

static void check_top(const Distill& args, int64_t R) {
  const int64_t K = args.top_ids.dim(1);
  check_shape(distill, "top_ids", args.top_ids, {R, K}, DType::i32);
  check_shape(distill, "top_logp", args.top_logp, {R, K});
  HONE_CHECK(K <= max_distill_top, "distill: a row has ", K, " tokens of the teacher; at most ", max_distill_top,
             " are possible");
}

void check_distill(const Distill& args, DType dtype) {
  const int64_t R = args.hidden.dim(0), V = args.w.dim(0), D = args.w.dim(1);
  check_shape(distill, "w", args.w, {V, D}, dtype);
  check_shape(distill, "hidden", args.hidden, {R, D}, dtype);
  HONE_CHECK(!args.teacher_w != !args.top_ids, "distill: the teacher is a model or its most likely tokens: give ",
             "teacher_w or top_ids");
  if (args.teacher_w)
    check_teacher(args, R, V);
  else
    check_top(args, R);
  check_shape(distill, "divergence", args.divergence, {R});
  check_shape(distill, "weight", args.weight, {R});
  check_optional(distill, "dhidden", args.dhidden, {R, D}, args.dhidden ? args.dhidden.dtype : dtype);
  check_optional(distill, "dw", args.dw, {V, D});
  HONE_CHECK(args.kind.beta >= 0 && args.kind.beta <= 1, "distill: beta is ", args.kind.beta, "; it must be in [0, 1]");
  HONE_CHECK(args.kind.inv_temperature > 0, "distill: inverse temperature is ", args.kind.inv_temperature,
             "; it must be above 0");
  for (const float softcap : {args.softcap, args.teacher_softcap})
    HONE_CHECK(softcap >= 0, "distill: softcap is ", softcap, "; it must be 0 or above");
  HONE_CHECK(!args.dw || args.dhidden, "distill: a gradient of w needs dhidden");
}

namespace {

// Throws an Error if a token of the teacher is outside of the vocabulary. Bodies for a CPU call it.
void check_top_ids(const Distill& args) {
  if (!args.top_ids) return;
  const int64_t V = args.w.dim(0);
  for (int64_t r = 0; r < args.top_ids.dim(0); ++r)
    for (int64_t k = 0; k < args.top_ids.dim(1); ++k) {
      const int32_t id = args.top_ids.row<int32_t>(r)[k];
      HONE_CHECK(id >= -1 && id < V, "distill: top_ids of row ", r, " has token ", id, "; the vocabulary has ", V,
                 " tokens");
    }
}

// The divergence of row r, whose gradient replaces the student's logits if the call wants it. teacher: its logits; null
// with top_ids.
double run_row(const Distill& args, int64_t r, float* student, const float* teacher) {
  const int64_t V = args.w.dim(0);
  const auto weight = static_cast<double>(args.weight.ptr<float>()[r]);
  float* const gradient = args.dhidden ? student : nullptr;
  if (teacher) return distill_row(student, teacher, V, args.kind, weight, gradient);
  const TopTokens<float> top{args.top_ids.row<int32_t>(r), args.top_logp.row<float>(r), args.top_ids.dim(1)};
  return distill_top_row(student, V, top, args.kind.inv_temperature, args.rest, weight, gradient);
}

// y = x . w^T, soft-capped unless softcap is 0.
void logits_of(Context& context, Tensor y, Tensor x, Tensor w, float softcap) {
  gemm_forward(context, {.y = y, .x = x, .w = w});
  if (softcap > 0) softcap_forward(context, y, softcap);
}

// A copy of the student's logits, which their gradient replaces; empty if no cap needs them.
Tensor capped_logits(Context& context, const Distill& args, const Tensor& student) {
  if (args.softcap == 0 || !args.dhidden) return {};
  const Tensor out = context.scratch().take(DType::f32, student.dims());
  context.copy(out, student);
  return out;
}

void specification(Context& context, const Distill& args) {
  check_distill(args, DType::f32);
  check_top_ids(args);
  const int64_t V = args.w.dim(0), D = args.w.dim(1);
  const ScratchScope scope(context);
  const Tensor student = context.scratch().take(DType::f32, {1, V}),
               teacher = args.teacher_w ? context.scratch().take(DType::f32, {1, V}) : Tensor();
  for (int64_t r = 0; r < args.hidden.dim(0); ++r) {
    const ScratchScope row_scope(context);
    logits_of(context, student, args.hidden.rows(r, 1), args.w, args.softcap);
    if (teacher) logits_of(context, teacher, args.teacher_hidden.rows(r, 1), args.teacher_w, args.teacher_softcap);
    const Tensor capped = capped_logits(context, args, student);
    float* const z = student.ptr<float>();
    args.divergence.ptr<float>()[r] = static_cast<float>(run_row(args, r, z, teacher ? teacher.ptr<float>() : nullptr));
    if (!args.dhidden) continue;
    if (capped) softcap_backward(context, student, capped, args.softcap);
    const float* const hidden = args.hidden.row<float>(r);
    float* const dhidden = args.dhidden.row<float>(r);
    for (int64_t v = 0; v < V; ++v)
      for (int64_t d = 0; d < D; ++d) {
        dhidden[d] += z[v] * args.w.row<float>(v)[d];
        if (args.dw) args.dw.row<float>(v)[d] += z[v] * hidden[d];
      }
  }
}

// Calls visit(row) for the rows of a block in parallel.
template <class Visit>
void for_each_row(int64_t rows, int64_t V, Visit visit) {
  constexpr int64_t worth_sharing = 16384;
  parallel_for(rows, std::max<int64_t>(1, worth_sharing / V), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) visit(r);
  });
}

int64_t rows_at_once(const Distill& args) {
  constexpr int64_t most_logits = int64_t{1} << 24, multiple = 8;
  return std::max(multiple, most_logits / std::max<int64_t>(args.w.dim(0), 1) / multiple * multiple);
}

void row_blocks(Context& context, const Distill& args) {
  check_distill(args, DType::f32);
  check_top_ids(args);
  const int64_t R = args.hidden.dim(0), V = args.w.dim(0), D = args.w.dim(1), most_rows = rows_at_once(args);
  for (int64_t first = 0; first < R; first += most_rows) {
    const ScratchScope scope(context);
    const int64_t rows = std::min(most_rows, R - first);
    const Tensor student = context.scratch().take(DType::f32, {rows, V}),
                 teacher = args.teacher_w ? context.scratch().take(DType::f32, {rows, V}) : Tensor();
    logits_of(context, student, args.hidden.rows(first, rows), args.w, args.softcap);
    if (teacher)
      logits_of(context, teacher, args.teacher_hidden.rows(first, rows), args.teacher_w, args.teacher_softcap);
    const Tensor capped = capped_logits(context, args, student);
    for_each_row(rows, V, [&](int64_t r) {
      args.divergence.ptr<float>()[first + r] = static_cast<float>(
          run_row(args, first + r, student.row<float>(r), teacher ? teacher.row<float>(r) : nullptr));
    });
    if (!args.dhidden) continue;
    if (capped) softcap_backward(context, student, capped, args.softcap);
    const Tensor dhidden = context.scratch().take(DType::f32, {rows, D});
    gemm_backward_input(context, dhidden, student, args.w);
    for_each_row(rows, D, [&](int64_t r) {
      float* const sum = args.dhidden.row<float>(first + r);
      const float* const part = dhidden.row<float>(r);
      for (int64_t d = 0; d < D; ++d) sum[d] += part[d];
    });
    if (args.dw) gemm_backward_weight(context, args.dw, {}, student, args.hidden.rows(first, rows));
  }
}

size_t scratch_bytes(const Distill& args) {
  const auto rows = static_cast<size_t>(std::min(rows_at_once(args), args.hidden.dim(0)));
  const auto V = static_cast<size_t>(args.w.dim(0)), D = static_cast<size_t>(args.w.dim(1));
  const size_t copies = 1 + (args.teacher_w ? 1 : 0) + (args.dhidden && args.softcap > 0 ? 1 : 0);
  return sizeof(float) * rows * (V * copies + (args.dhidden ? D : 0));
}

bool supports(const Distill&) { return has_fused_multiply_add(); }

[[maybe_unused]] const bool added =
    distill.add({"specification", DeviceKind::cpu, specification}) &&
    distill.add({"row_blocks", DeviceKind::cpu, row_blocks, 10, supports, scratch_bytes});

}  // namespace
}  // namespace hone
