// How well a model predicts text: nats a token, bits a byte, perplexity. A document longer than the model's positions is cut into windows; each token
// is predicted from the window before it. With a prompt only what follows it counts; a prompt that does not fit loses its beginning. With max_length
// only a document's first tokens count, and the bytes that they stand for.
#include <algorithm>
#include <cmath>

#include "core/log.h"
#include "core/model/score.h"
#include "core/stopwatch.h"
#include "posttrain/dataset.h"
#include "posttrain/eval/task.h"
#include "posttrain/row_template.h"

namespace hone {
namespace {

using Ids = std::vector<int32_t>;

// Sums over documents; scores some thousands of tokens at once.
class Surprise {
 public:
  explicit Surprise(EvalModel& on) : on_(on), longest_(static_cast<size_t>(on.model.shape().max_positions)) {
    HONE_CHECK(longest_ >= 2, "perplexity: the model has ", longest_, " position, nothing can be predicted");
  }

  // What follows the first `given` ids counts; the very first id never does.
  void add(const Ids& ids, size_t given, size_t bytes) {
    bytes_ += static_cast<double>(bytes);
    size_t first = std::max<size_t>(1, given);
    size_t begin = given > 0 && ids.size() > longest_ ? std::min(first - 1, ids.size() - longest_) : 0;
    while (first < ids.size()) {
      const size_t end = std::min(ids.size(), begin + longest_);
      windows_.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.begin() + static_cast<std::ptrdiff_t>(end));
      first_.push_back(first - begin);
      waiting_ += end - begin;
      first = end;
      begin = end - 1;
    }
    if (waiting_ > 32768) flush();
  }

  Metrics finish() {
    flush();
    HONE_CHECK(predicted_ > 0, "perplexity: the text has no token to predict");
    Metrics out{{"nats_per_token", nll_ / predicted_}, {"perplexity", std::exp(nll_ / predicted_)}, {"predicted_tokens", predicted_}};
    if (bytes_ > 0) out["bits_per_byte"] = nll_ / std::log(2.0) / bytes_;
    return out;
  }

 private:
  void flush() {
    const std::vector<TokenScores> scores = score_sequences(on_.context, on_.model, windows_, {});
    for (size_t i = 0; i < scores.size(); ++i) {
      for (size_t t = first_[i]; t < scores[i].logp.size(); ++t) nll_ -= scores[i].logp[t];
      predicted_ += static_cast<double>(scores[i].logp.size() - first_[i]);
    }
    windows_.clear(), first_.clear();
    waiting_ = 0;
  }

  EvalModel& on_;
  size_t longest_, waiting_ = 0;
  std::vector<Ids> windows_;
  std::vector<size_t> first_;  // counted id of each window
  double nll_ = 0, bytes_ = 0, predicted_ = 0;
};

class Perplexity : public EvalTask {
 public:
  void fields(Fields& f) override {
    rows_.fields(f);
    f("prompt", prompt_, "template of what goes before the text and does not count");
    f("text", text_, "template of a document");
    f("end_of_document", end_of_document_, "the tokenizer's eos is predicted too");
    f("max_length", max_length_, "first tokens of a document only, prompt included; 0 = all");
    f.require("max_length", max_length_ == 0 || max_length_ >= 2, "max_length must be 0, or at least 2");
  }

  EvalResult run(EvalModel& on, const EvalOptions& options) const override {
    const Stopwatch watch;
    RowSource source = rows_;
    if (options.limit > 0) source.limit = options.limit;
    EvalResult out;
    out.kind = "perplexity";
    Surprise surprise(on);
    log::Progress progress("eval", options.limit, "document");
    read_rows(source, [&](const Json& row, const std::string& where) {
      const std::string text = fill_template(text_, row, where);
      const bool prompted = !prompt_.empty();
      Ids ids = on.tokenizer.encode_document(prompted ? fill_template(prompt_, row, where) : text);
      const size_t given = prompted ? ids.size() : 0;
      if (prompted)
        for (const int32_t id : on.tokenizer.encode(text)) ids.push_back(id);
      if (end_of_document_ && on.tokenizer.eos()) ids.push_back(*on.tokenizer.eos());
      size_t bytes = text.size();
      if (max_length_ > 0 && static_cast<int64_t>(ids.size()) > max_length_) {
        ids.resize(static_cast<size_t>(max_length_));
        bytes = on.tokenizer.decode(std::span(ids).subspan(std::min(given, ids.size())), true).size();
      }
      out.num_tokens += static_cast<int64_t>(ids.size());
      surprise.add(ids, given, bytes);
      progress.update(++out.num_problems);
    });
    out.metrics = surprise.finish();
    out.seconds = watch.seconds();
    return out;
  }

 private:
  RowSource rows_;
  std::string prompt_, text_ = "{text}";
  bool end_of_document_ = false;
  int64_t max_length_ = 0;
};

[[maybe_unused]] const bool added = eval_kinds().add("perplexity", [] { return std::unique_ptr<EvalTask>(new Perplexity); });

}  // namespace
}  // namespace hone
