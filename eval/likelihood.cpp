#include "eval/likelihood.h"

#include <algorithm>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>

#include "core/base/format.h"
#include "core/base/log.h"
#include "core/base/parallel_for.h"
#include "core/base/stopwatch.h"
#include "rollout/shared_prefix_logprobs.h"

namespace hone {
namespace {

constexpr size_t max_chunk_problems = 256;
constexpr size_t max_chunk_bytes = size_t{4} << 20;  // of the problems' texts

struct EncodedProblem {
  Json prompt;
  std::vector<Continuation> texts;
};

struct EncodedChunk {
  size_t end = 0;  // one past its last place in the order
  std::vector<EncodedProblem> problems;
};

// A problem some of whose texts are not computed yet.
struct PendingProblem {
  size_t index = 0, num_texts = 0;
  ProblemLikelihoods likelihoods;
};

// The order of computation: problems of a subtask have the same examples, so they stay together.
std::vector<size_t> order_of(const std::vector<EvalExample>& docs) {
  std::vector<size_t> out(docs.size());
  std::iota(out.begin(), out.end(), size_t{0});
  std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return docs[a].subtask < docs[b].subtask; });
  return out;
}

size_t text_bytes(const EvalExample& doc) {
  size_t out = doc.question.size();
  for (const Shot& shot : doc.shots) out += shot.prompt.size() + shot.target.size();
  for (const Message& message : doc.messages) out += message.content.size();
  return out;
}

// Renders and encodes problems on all host threads. Any thread may call encode(), one at a time.
class ProblemEncoder {
 public:
  ProblemEncoder(const LikelihoodJob& job, const std::vector<size_t>& order, const Tokenizer& tokenizer)
      : job_(job), order_(order), tokenizer_(tokenizer) {}

  // The problems from place `begin` on. The limits of a chunk bound the memory.
  EncodedChunk encode(size_t begin) {
    EncodedChunk out{begin, {}};
    for (size_t bytes = 0; out.end < order_.size() && out.end - begin < max_chunk_problems && bytes < max_chunk_bytes;
         ++out.end)
      bytes += text_bytes(job_.docs[order_[out.end]]);
    out.problems.resize(out.end - begin);
    parallel_for(std::ssize(out.problems), 4, [&](int64_t first, int64_t end) {
      std::unique_ptr<ContinuationEncoder> encoder = take_encoder();
      for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(end); ++i) {
        const size_t index = order_[begin + i];
        const EvalExample& doc = job_.docs[index];
        const Task task = job_.renderer.task(doc);
        out.problems[i] = {PromptRenderer::shown(task), encoder->encode(task, doc.where, job_.texts(index))};
      }
      const std::lock_guard lock(mutex_);
      spare_.push_back(std::move(encoder));
    });
    return out;
  }

 private:
  // An encoder is one thread's. Making one parses the chat template.
  std::unique_ptr<ContinuationEncoder> take_encoder() {
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        std::unique_ptr<ContinuationEncoder> out = std::move(spare_.back());
        spare_.pop_back();
        return out;
      }
    }
    return std::make_unique<ContinuationEncoder>(job_.renderer.format(), tokenizer_, job_.max_length);
  }

  const LikelihoodJob& job_;
  const std::vector<size_t>& order_;
  const Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ContinuationEncoder>> spare_;
};

void log_work(const SharedPrefixLogprobs::Stats& stats, double waited) {
  log::info(
      format_text("eval: computed %lld of %lld tokens (passes: %lld); %.2f s in the model, %.2f s waiting for "
                  "encoded texts",
                  static_cast<long long>(stats.computed_tokens), static_cast<long long>(stats.tokens),
                  static_cast<long long>(stats.passes), stats.seconds, waited));
}

void report_cut(EvalRun& out, int64_t num_cut, const LikelihoodJob& job, int64_t max_positions) {
  if (num_cut == 0) return;
  out.facts["cut"] = static_cast<double>(num_cut);
  log::warning("eval: ", num_cut, " of ", job.docs.size(), " prompts are longer than the model's ", max_positions,
               " positions and were cut at the beginning");
}

}  // namespace

void compute_likelihoods(EvalTarget& target, const LikelihoodJob& job, EvalRun& out,
                         const std::function<void(size_t i, ProblemLikelihoods likelihoods)>& visit) {
  log::Progress progress("eval", static_cast<int64_t>(job.docs.size()), "problem");
  const std::vector<size_t> order = order_of(job.docs);
  std::deque<PendingProblem> pending;
  int64_t num_done = 0;
  const auto add_result = [&](size_t, const ContinuationLogprobs& text) {
    PendingProblem& problem = pending.front();
    double sum = 0;
    for (const float logp : text.logp) sum += logp;
    problem.likelihoods.logp.push_back(sum);
    problem.likelihoods.greedy.push_back(text.greedy);
    if (problem.likelihoods.logp.size() < problem.num_texts) return;
    visit(problem.index, std::move(problem.likelihoods));
    progress.update(++num_done);
    pending.pop_front();
  };
  SharedPrefixLogprobs logprobs(
      target.context, target.model,
      {.batch_tokens = target.engine.max_batch_tokens, .block_size = target.engine.kv_block_size, .greedy = job.greedy},
      add_result);
  ProblemEncoder encoder(job, order, target.tokenizer);
  const auto encode_ahead = [&](size_t begin) {
    return std::async(std::launch::async, [&encoder, begin] { return encoder.encode(begin); });
  };
  int64_t num_cut = 0;
  double waited = 0;
  std::future<EncodedChunk> next = encode_ahead(0);
  for (size_t begin = 0; begin < order.size();) {
    const Stopwatch wait;
    EncodedChunk chunk = next.get();
    waited += wait.seconds();
    if (chunk.end < order.size()) next = encode_ahead(chunk.end);
    for (EncodedProblem& problem : chunk.problems) {
      pending.push_back({order[begin++], problem.texts.size(), {std::move(problem.prompt), {}, {}}});
      bool cut = false;
      for (Continuation& text : problem.texts) {
        cut = cut || text.cut;
        out.num_tokens += std::ssize(text.ids);
        logprobs.add(std::move(text.ids), text.first);
      }
      num_cut += cut;
    }
  }
  logprobs.flush();
  log_work(logprobs.stats(), waited);
  report_cut(out, num_cut, job, target.model.shape().max_positions);
}

}  // namespace hone
