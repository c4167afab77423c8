// How well a model predicts text: nats a token, bits a byte, perplexity. A document longer than the model's positions is cut into windows; each token is
// predicted from the window before it.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/log.h"
#include "core/model/score.h"
#include "posttrain/dataset.h"
#include "posttrain/eval/task.h"

namespace hone {
namespace {

class Perplexity : public EvalTask {
 public:
  void fields(Fields& f) override {
    rows_.fields(f);
    f("text", text_, "template of a document");
    f("end_of_document", end_of_document_, "the tokenizer's eos is predicted too");
  }

  EvalResult run(EvalModel& on, const EvalOptions& options) const override {
    const auto start = std::chrono::steady_clock::now();
    RowSource source = rows_;
    if (options.limit > 0) source.limit = options.limit;
    EvalResult out;
    out.kind = "perplexity";
    double nll = 0, bytes = 0, predicted = 0;
    std::vector<std::vector<int32_t>> windows;
    int64_t waiting = 0;
    const auto flush = [&] {
      for (const TokenScores& scores : score_sequences(on.context, on.model, windows, {})) {
        for (size_t t = 1; t < scores.logp.size(); ++t) nll -= scores.logp[t];
        predicted += static_cast<double>(scores.logp.size() - 1);
      }
      windows.clear();
      waiting = 0;
    };
    log::Progress progress("eval", options.limit, "document");
    read_rows(source, [&](const Json& row, const std::string& where) {
      const std::string text = fill_template(text_, row, where);
      std::vector<int32_t> ids = on.tokenizer.encode_document(text);
      if (end_of_document_ && on.tokenizer.eos()) ids.push_back(*on.tokenizer.eos());
      bytes += static_cast<double>(text.size());
      out.num_tokens += static_cast<int64_t>(ids.size());
      const size_t longest = static_cast<size_t>(on.model.shape().max_positions);
      for (size_t begin = 0; begin + 1 < ids.size(); begin += longest - 1) {
        windows.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), begin + longest)));
        waiting += static_cast<int64_t>(windows.back().size());
      }
      progress.update(++out.num_problems);
      if (waiting > 32768) flush();
    });
    flush();
    HONE_CHECK(predicted > 0, "perplexity: the text has no token to predict");
    out.metrics["nats_per_token"] = nll / predicted;
    out.metrics["perplexity"] = std::exp(nll / predicted);
    if (bytes > 0) out.metrics["bits_per_byte"] = nll / std::log(2.0) / bytes;
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return out;
  }

 private:
  RowSource rows_;
  std::string text_ = "{text}";
  bool end_of_document_ = false;
};

[[maybe_unused]] const bool added = eval_kinds().add("perplexity", [] { return std::unique_ptr<EvalTask>(new Perplexity); });

}  // namespace
}  // namespace hone
