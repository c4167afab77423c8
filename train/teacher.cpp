#include "train/teacher.h"

#include <algorithm>
#include <cstring>

#include "model/forward.h"
#include "model/model.h"

namespace hone {

void TeacherEndpoint::fields(Fields& f) {
  ModelApiConfig::fields(f);
  f("api", api,
    "how the server returns log-probs of given tokens: vllm = prompt_logprobs, echo = echo and logprobs of the older "
    "completions API, auto = the first that the server knows");
  f("concurrency", concurrency, "requests at the same time");
  f.require("api", api == "auto" || api == "vllm" || api == "echo", "api must be auto, vllm or echo");
  f.require("concurrency", concurrency >= 1 && concurrency <= 1024, "concurrency must be in [1, 1024]");
  f.require("model", base_url.empty() || !model.empty(), "model is missing: give the teacher's name on the server");
}

TeacherObjective::TeacherObjective(TeacherConfig config, Term term) : config_(std::move(config)), term_(term) {}
TeacherObjective::~TeacherObjective() = default;

void TeacherObjective::set_teacher(std::unique_ptr<Model> teacher, std::unique_ptr<DividedValues> shards) {
  shards_ = std::move(shards);
  teacher_ = std::move(teacher);
}

Model& TeacherObjective::teacher() const {
  HONE_CHECK(teacher_, "distill: this stage does not load a teacher");
  return *teacher_;
}

void TeacherObjective::set_contexts(std::vector<std::vector<int32_t>> contexts, std::optional<int32_t> bos) {
  contexts_ = std::move(contexts);
  bos_ = bos;
}

std::vector<int32_t> TeacherObjective::with_context(std::span<const int32_t> tokens, float index) const {
  const std::vector<int32_t>& context = contexts_.at(static_cast<size_t>(index));
  const bool has_bos = bos_ && !tokens.empty() && tokens.front() == *bos_;
  std::vector<int32_t> out(tokens.begin(), tokens.end());
  out.insert(out.begin() + (has_bos ? 1 : 0), context.begin(), context.end());
  return out;
}

double TeacherObjective::given_divergence(const TokenBatch& batch, MetricSums& metrics) const {
  const std::span<const float> divergence = batch.find(columns::divergence), mask = batch[columns::mask];
  double sum = 0;
  for (size_t t = 0; t < divergence.size(); ++t) {
    if (mask[t] == 0) continue;
    sum += term_.weight * mask[t] * divergence[t];
    metrics.add("distill/divergence", mask[t] * divergence[t], mask[t]);
  }
  return sum * batch.scale;
}

namespace {

// The sequences of a micro-batch after their contexts, and the places of its rows in them.
struct ContextBatch {
  std::vector<std::vector<int32_t>> sequences;
  std::vector<BatchPart> parts;
  std::vector<int32_t> rows;

  ContextBatch(const TeacherObjective& objective, const MicroBatchData& staging) {
    const std::span<const float> index = staging.batch(1)[columns::teacher_context];
    const std::span<const int32_t> own = staging.rows();
    size_t next = 0;
    int32_t own_begin = 0, begin = 0;
    for (size_t s = 0; s < staging.parts().size(); ++s) {
      const std::span<const int32_t> tokens = staging.parts()[s].tokens;
      const std::vector<int32_t>& with = sequences.emplace_back(objective.with_context(tokens, index[s]));
      const auto own_end = own_begin + static_cast<int32_t>(tokens.size());
      const auto added = static_cast<int32_t>(with.size() - tokens.size());
      for (; next < own.size() && own[next] < own_end; ++next) rows.push_back(begin + added + own[next] - own_begin);
      own_begin = own_end;
      begin += static_cast<int32_t>(with.size());
    }
    for (const std::vector<int32_t>& sequence : sequences) parts.push_back({.tokens = sequence});
  }
};

// The teacher's hidden states of the rows.
Tensor teacher_hidden(Context& context, Arena& arena, const TeacherObjective& objective, const MicroBatchData& staging,
                      const Batch& batch, Tensor rows) {
  Model& teacher = objective.teacher();
  if (!objective.has_contexts()) return infer(context, teacher, batch, rows, nullptr);
  const ContextBatch with(objective, staging);
  return infer(context, teacher, pack_batch(context, arena, with.parts),
               upload(context, arena, std::span<const int32_t>(with.rows)), nullptr);
}

// The stored tokens of the rows, as wide as the row that has most.
void add_top(Context& context, Arena& arena, const MicroBatchData& staging, Distill& call) {
  constexpr size_t width = max_teacher_top;
  const TokenBatch batch = staging.batch(1);
  const std::span<const float> ids = batch[columns::teacher_top_ids], logp = batch[columns::teacher_top_logp];
  const auto entry_of = [](int32_t row) { return (static_cast<size_t>(row) + 1) * width; };
  size_t count = 1;
  for (const int32_t row : staging.rows())
    for (size_t k = count; k < width && ids[entry_of(row) + k] >= 0; ++k) count = k + 1;
  std::vector<int32_t> row_ids;
  std::vector<float> row_logp;
  for (const int32_t row : staging.rows())
    for (size_t k = 0; k < count; ++k) {
      row_ids.push_back(static_cast<int32_t>(ids[entry_of(row) + k]));
      row_logp.push_back(logp[entry_of(row) + k]);
    }
  const int64_t R = std::ssize(staging.rows()), K = static_cast<int64_t>(count);
  call.top_ids = upload(context, arena, std::span<const int32_t>(row_ids)).view({R, K});
  call.top_logp = upload(context, arena, std::span<const float>(row_logp)).view({R, K});
}

}  // namespace

void run_teacher_term(Context& context, Arena& arena, const TeacherObjective& objective, const MicroBatchData& staging,
                      const Batch& batch, Tensor rows, Distill student) {
  student.kind = objective.term().divergence;
  student.rest = objective.term().rest;
  if (objective.term().stored) {
    add_top(context, arena, staging, student);
  } else {
    student.teacher_hidden = teacher_hidden(context, arena, objective, staging, batch, rows);
    student.teacher_w = objective.teacher().lm_head().value;
    student.teacher_softcap = objective.teacher().shape().logit_softcap;
  }
  distill(context, student);
}

void skip_teacher_term(Context& context, const TeacherObjective& objective) {
  if (objective.reads_model() && objective.teacher().value_hooks()) skip_infer(context, objective.teacher());
}

namespace {

// The divergence of the tokens of a micro-batch, sample after sample.
std::vector<float> divergence_of(Context& context, const TeacherObjective& objective, Model& student,
                                 const MicroBatchData& staging) {
  Arena arena(context.device());
  const ScratchScope scope(context);
  const Batch batch = pack_batch(context, arena, staging.parts());
  const Tensor rows = upload(context, arena, staging.rows()), out = arena.take(DType::f32, {rows.size()}),
               unweighted = arena.take(DType::f32, {rows.size()});
  context.zero(unweighted);
  run_teacher_term(context, arena, objective, staging, batch, rows,
                   {.divergence = out,
                    .weight = unweighted,
                    .hidden = infer(context, student, batch, rows, nullptr),
                    .w = student.lm_head().value,
                    .kind = {},
                    .softcap = student.shape().logit_softcap});
  std::vector<float> tokens;
  staging.to_tokens(download(context, out), tokens);
  return tokens;
}

// A sequence's first token has no distribution.
bool is_trained_on(const Sample* sample) {
  const std::span<const float> mask = sample->columns.find(columns::mask);
  return std::ranges::any_of(mask.subspan(std::min<size_t>(1, mask.size())), [](float m) { return m != 0; });
}

}  // namespace

// Ranks run side by side, as in Trainer: micro-batches k N to k N + N - 1 are one round.
void write_divergence(const Ranks& ranks, Context& context, const TeacherObjective& objective, Model& student,
                      std::span<Sample* const> samples) {
  constexpr int64_t batch_tokens = 4096;
  std::vector<Sample*> written;
  for (Sample* sample : samples) {
    sample->columns.assign(columns::divergence, sample->tokens.size(), 0);
    if (is_trained_on(sample)) written.push_back(sample);
  }
  const std::vector<const Sample*> trained(written.begin(), written.end());
  std::vector<MicroBatch> batches;
  make_micro_batches(trained, 1, batch_tokens, batches);
  const auto num_ranks = static_cast<size_t>(ranks.size()), rank = static_cast<size_t>(ranks.rank());
  std::string own;
  for (size_t first = 0; first < batches.size(); first += num_ranks) {
    if (first + rank >= batches.size()) {
      if (student.value_hooks()) skip_infer(context, student);
      skip_teacher_term(context, objective);
      continue;
    }
    const MicroBatch& batch = batches[first + rank];
    MicroBatchData staging;
    staging.fill(std::span(trained).subspan(batch.begin, batch.end - batch.begin));
    const std::vector<float> values = divergence_of(context, objective, student, staging);
    own.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  const std::vector<std::string> all = ranks.all_gather(std::move(own), "divergences");
  std::vector<size_t> read(num_ranks);
  for (size_t b = 0; b < batches.size(); ++b)
    for (size_t i = batches[b].begin; i < batches[b].end; ++i) {
      const std::span<float> to = written[i]->columns[columns::divergence];
      const std::string& from = all[b % num_ranks];
      HONE_CHECK(from.size() - read[b % num_ranks] >= to.size_bytes(), "divergences of rank ", b % num_ranks,
                 " are incomplete");
      std::memcpy(to.data(), from.data() + read[b % num_ranks], to.size_bytes());
      read[b % num_ranks] += to.size_bytes();
    }
}

}  // namespace hone
