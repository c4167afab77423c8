#include "eval/likelihood.h"

#include <algorithm>
#include <cstring>
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

// What is counted beside the likelihoods.
struct TextCounts {
  int64_t num_tokens = 0, num_cut = 0;
};

using VisitProblem = std::function<void(size_t i, ProblemLikelihoods likelihoods)>;

// The problems of `order`.
TextCounts compute_part(EvalTarget& target, const LikelihoodJob& job, const std::vector<size_t>& order,
                        const VisitProblem& visit) {
  log::Progress progress("eval", static_cast<int64_t>(order.size()), "problem");
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
  TextCounts out;
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
      out.num_cut += cut;
    }
  }
  logprobs.flush();
  log_work(logprobs.stats(), waited);
  return out;
}

// Cuts the order into one part per rank, of about equal bytes. Neighbors share prefixes, so they stay together.
std::vector<std::vector<size_t>> parts_of(const std::vector<size_t>& order, const std::vector<EvalExample>& docs,
                                          int num_ranks) {
  double total = 0, before = 0;
  for (const size_t i : order) total += static_cast<double>(1 + text_bytes(docs[i]));
  std::vector<std::vector<size_t>> out(static_cast<size_t>(num_ranks));
  for (const size_t i : order) {
    const auto rank = static_cast<size_t>(before / total * num_ranks);
    out[std::min(rank, out.size() - 1)].push_back(i);
    before += static_cast<double>(1 + text_bytes(docs[i]));
  }
  return out;
}

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
T take(std::string_view& bytes) {
  T out;
  HONE_CHECK(bytes.size() >= sizeof out, "likelihoods of another rank: the bytes end early");
  std::memcpy(&out, bytes.data(), sizeof out);
  bytes.remove_prefix(sizeof out);
  return out;
}

// Computes this rank's part and visits the problems of all parts. What a rank sends: the counts; for each problem the
// number of its texts, and for each text the likelihood and whether it is greedy.
TextCounts compute_shared(EvalTarget& target, const LikelihoodJob& job, const std::vector<size_t>& order,
                          const VisitProblem& visit) {
  const auto parts = parts_of(order, job.docs, target.ranks.size());
  std::string likelihoods, bytes;
  append(bytes, compute_part(target, job, parts[static_cast<size_t>(target.ranks.rank())],
                             [&](size_t, const ProblemLikelihoods& problem) {
                               append(likelihoods, static_cast<uint64_t>(problem.logp.size()));
                               for (size_t i = 0; i < problem.logp.size(); ++i) {
                                 append(likelihoods, problem.logp[i]);
                                 append(likelihoods, static_cast<uint8_t>(problem.greedy[i]));
                               }
                             }));
  const std::vector<std::string> all = target.ranks.all_gather(bytes + likelihoods, "likelihoods");
  TextCounts out;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::string_view rest = all[rank];
    const auto counts = take<TextCounts>(rest);
    out.num_tokens += counts.num_tokens;
    out.num_cut += counts.num_cut;
    for (const size_t i : parts[rank]) {
      ProblemLikelihoods problem{
          .prompt = PromptRenderer::shown(job.renderer.task(job.docs[i])), .logp = {}, .greedy = {}};
      for (uint64_t left = take<uint64_t>(rest); left > 0; --left) {
        problem.logp.push_back(take<double>(rest));
        problem.greedy.push_back(take<uint8_t>(rest) != 0);
      }
      visit(i, std::move(problem));
    }
  }
  return out;
}

}  // namespace

void compute_likelihoods(EvalTarget& target, const LikelihoodJob& job, EvalRun& out,
                         const std::function<void(size_t i, ProblemLikelihoods likelihoods)>& visit) {
  const std::vector<size_t> order = order_of(job.docs);
  const TextCounts counts =
      target.ranks.size() == 1 ? compute_part(target, job, order, visit) : compute_shared(target, job, order, visit);
  out.num_tokens += counts.num_tokens;
  if (counts.num_cut == 0) return;
  const int64_t max_positions = target.model.shape().max_positions;
  out.facts["cut"] = static_cast<double>(counts.num_cut);
  log::warning("eval: ", counts.num_cut, " of ", job.docs.size(), " prompts are longer than the model's ",
               max_positions, " positions and were cut at the beginning");
}

}  // namespace hone
