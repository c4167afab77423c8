// Evaluation kind "perplexity": how well a model predicts text, as bits and perplexity per byte, nats and perplexity
// per token, and perplexity per word (lm-evaluation-harness's metrics of loglikelihood_rolling). A document begins with
// the tokenizer's BOS, else its EOS, which is not predicted. A document longer than the model's positions is split into
// windows; each predicts the tokens that the windows before did not, and the last one reaches back as far as the
// positions allow. With max_length only a document's first tokens count, and the bytes and words of these tokens.
#include <algorithm>
#include <cmath>

#include "core/base/log.h"
#include "data/row_template.h"
#include "eval/prompts.h"
#include "eval/task.h"
#include "rewards/answers/text.h"
#include "train/shared_scores.h"

namespace hone {
namespace {

using Ids = std::vector<int32_t>;

struct Window {
  size_t sample = 0, first = 0;  // its sample, and the first id that counts
};

// Number of parts of Python's re.split(r"\s+", text): empty parts at the ends count.
double num_words(std::string_view text) {
  double count = 1;
  for (size_t i = 0; i < text.size(); ++i) count += is_space(text[i]) && (i == 0 || !is_space(text[i - 1]));
  return count;
}

// Computes documents' negative log-likelihoods, many thousands of tokens at once.
class NllAccumulator {
 public:
  explicit NllAccumulator(EvalTarget& target)
      : target_(target), positions_(static_cast<size_t>(target.model.shape().max_positions)) {}

  // Adds a document; all ids but the first count.
  void add(const Ids& ids) {
    for (size_t next = 1; next < ids.size();) {
      const size_t end = std::min(ids.size(), next + positions_), begin = end - std::min(end, positions_ + 1);
      sequences_.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                              ids.begin() + static_cast<std::ptrdiff_t>(end));
      windows_.push_back({nll.size(), next - begin});
      num_tokens_ += end - begin;
      next = end;
    }
    nll.push_back(0);
    if (num_tokens_ > 32768) flush();
  }

  void flush() {
    const std::vector<TokenLogprobs> logprobs =
        shared_logprobs(target_.ranks, target_.context, target_.model, sequences_, {});
    for (size_t i = 0; i < logprobs.size(); ++i)
      for (size_t t = windows_[i].first; t < logprobs[i].logp.size(); ++t)
        nll[windows_[i].sample] -= logprobs[i].logp[t];
    windows_.clear();
    sequences_.clear();
    num_tokens_ = 0;
  }

  std::vector<double> nll;  // of each document; complete after flush()

 private:
  EvalTarget& target_;
  size_t positions_, num_tokens_ = 0;
  std::vector<Ids> sequences_;
  std::vector<Window> windows_;
};

class Perplexity : public EvalTask {
 public:
  void fields(Fields& f) override {
    rows_.fields(f);
    f("text", text_, "template of a document");
    f("end_of_document", end_of_document_, "predict the tokenizer's EOS after each document as well");
    f("max_length", max_length_, "use only this many first tokens of a document; 0 = all");
    f.require("max_length", max_length_ == 0 || max_length_ >= 2, "max_length must be 0, or 2 or more");
  }
  void check_rows(const EvalOptions& options) const override { load_rows(options, RowsToLoad::first_of_files); }
  void each_row(const std::function<void(const Json&, const std::string&)>& row) const override {
    read_rows(rows_, row);
  }

  EvalRun run(EvalTarget& target, const EvalOptions& options) const override {
    const std::vector<EvalExample> docs = load_rows(options);
    EvalRun out;
    NllAccumulator nll_sums(target);
    log::Progress progress("eval", static_cast<int64_t>(docs.size()), "document");
    double predicted = 0;
    for (const EvalExample& doc : docs) {
      Ids ids = document(target.tokenizer, doc.question);
      std::string text = doc.question;
      if (max_length_ > 0 && static_cast<int64_t>(ids.size()) > max_length_) {
        ids.resize(static_cast<size_t>(max_length_));
        text = target.tokenizer.decode(ids, true);
      }
      const double tokens = static_cast<double>(std::max<size_t>(ids.size(), 1) - 1);
      nll_sums.add(ids);
      EvalSample& sample = out.samples.emplace_back(make_sample(doc));
      sample.prompt = doc.question;
      sample.metrics = {{"bits_per_byte", {0, static_cast<double>(text.size())}},
                        {"byte_perplexity", {0, static_cast<double>(text.size())}},
                        {"word_perplexity", {0, num_words(text)}},
                        {"nats_per_token", {0, tokens}},
                        {"perplexity", {0, tokens}}};
      out.num_tokens += static_cast<int64_t>(ids.size());
      predicted += tokens;
      progress.update(doc.doc_id + 1);
    }
    nll_sums.flush();
    HONE_CHECK(predicted > 0, "perplexity: the documents have no token to predict; each needs at least two tokens");
    for (size_t i = 0; i < out.samples.size(); ++i)
      for (auto& [name, observation] : out.samples[i].metrics)
        observation.value = nll_sums.nll[i] / (name == "bits_per_byte" ? std::log(2.0) : 1.0);
    out.facts["predicted_tokens"] = predicted;
    out.exponents = {"byte_perplexity", "word_perplexity", "perplexity"};
    out.lower = {"bits_per_byte", "byte_perplexity", "word_perplexity", "nats_per_token", "perplexity"};
    return out;
  }

 private:
  std::vector<EvalExample> load_rows(const EvalOptions& options, RowsToLoad which = RowsToLoad::all) const {
    PromptSource source;
    source.rows = rows_;
    source.prompt = text_;
    EvalOptions zero_shot = options;
    zero_shot.num_fewshot = 0;
    return source.load(zero_shot, {}, which);
  }

  Ids document(const Tokenizer& tokenizer, const std::string& text) const {
    Ids out = tokenizer.encode_document(text);
    const auto prefix = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
    if (prefix && (out.empty() || out.front() != *prefix)) out.insert(out.begin(), *prefix);
    if (end_of_document_ && tokenizer.eos()) out.push_back(*tokenizer.eos());
    return out;
  }

  RowSource rows_;
  std::string text_ = "{text}";
  bool end_of_document_ = false;
  int64_t max_length_ = 0;
};

[[maybe_unused]] const bool added =
    eval_kinds().add("perplexity", [] { return std::unique_ptr<EvalTask>(new Perplexity); });

}  // namespace
}  // namespace hone
