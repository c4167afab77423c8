// Evaluation kind "loglikelihood": how likely a text is after its prompt, and whether greedy decoding generates it.
// Metrics are LAMBADA's perplexity (per text, not per token: exp(-mean log-likelihood), as in lm-evaluation-harness)
// and acc, and bits per byte of the texts.
#include <algorithm>
#include <cmath>

#include "core/base/log.h"
#include "data/row_template.h"
#include "eval/continuation.h"
#include "eval/endpoint.h"
#include "eval/prompts.h"
#include "eval/task.h"

namespace hone {
namespace {

class LogLikelihood : public EvalTask {
 public:
  LogLikelihood() { source_.prompt = "{context}"; }
  void fields(Fields& f) override {
    source_.fields(f);
    f("target", target_, "template of the text after the prompt, with its leading space");
  }
  void each_row(const std::function<void(const Json&, const std::string&)>& row) const override {
    read_rows(source_.rows, row);
  }
  int64_t num_fewshot(const EvalOptions& options) const override { return source_.shots(options); }

  EvalRun run(EvalTarget& target, const EvalOptions& options) const override {
    constexpr size_t at_once = 256;
    const auto target_of = [&](const Json& row, const std::string& where) {
      return fill_template(target_, row, where);
    };
    const std::vector<EvalExample> docs = source_.load(options, target_of);
    const PromptRenderer renderer(source_, options);
    ContinuationEncoder encoder(renderer, target.tokenizer, target.model.shape().max_positions);
    Engine engine(target.context, target.model, &target.tokenizer, target.engine);
    log::Progress progress("eval", static_cast<int64_t>(docs.size()), "text");
    EvalRun out;
    int64_t num_cut = 0;
    for (size_t begin = 0; begin < docs.size(); begin += at_once) {
      const size_t end = std::min(begin + at_once, docs.size());
      std::vector<Continuation> texts;
      for (size_t i = begin; i < end; ++i) {
        texts.push_back(encoder.encode(docs[i], "", target_of(docs[i].row, docs[i].where)));
        out.num_tokens += static_cast<int64_t>(texts.back().ids.size());
        num_cut += texts.back().cut;
      }
      const std::vector<double> logp = log_likelihoods(target, texts);
      const std::vector<bool> greedy = greedy_matches(engine, texts);
      for (size_t i = begin; i < end; ++i) {
        EvalSample& sample = out.samples.emplace_back(make_sample(docs[i]));
        sample.prompt = PromptRenderer::shown(renderer.task(docs[i]));
        sample.target = target_of(docs[i].row, docs[i].where);
        add_figures(sample, logp[i - begin], greedy[i - begin]);
      }
      progress.update(static_cast<int64_t>(end));
    }
    name_figures(out);
    if (num_cut > 0) {
      out.facts["cut"] = static_cast<double>(num_cut);
      log::warning("eval: ", num_cut, " of ", docs.size(), " contexts are longer than the model's ",
                   target.model.shape().max_positions, " positions and were cut at the beginning");
    }
    return out;
  }

  EvalRun run_remote(Endpoint& endpoint, const EvalOptions& options) const override {
    const auto target_of = [&](const Json& row, const std::string& where) {
      return fill_template(target_, row, where);
    };
    const std::vector<EvalExample> docs = source_.load(options, target_of);
    const PromptRenderer renderer(source_, options);
    std::vector<ScoredText> texts;
    for (const EvalExample& doc : docs)
      texts.push_back({doc.where, plain_prompt(renderer.task(doc)), target_of(doc.row, doc.where)});
    const std::vector<TextScore> scores = endpoint.score(texts);
    EvalRun out;
    for (size_t i = 0; i < docs.size(); ++i) {
      EvalSample& sample = out.samples.emplace_back(make_sample(docs[i]));
      sample.prompt = PromptRenderer::shown(renderer.task(docs[i]));
      sample.target = texts[i].continuation;
      if (scores[i].problem.empty())
        add_figures(sample, scores[i].logp, scores[i].is_greedy);
      else
        sample.details.emplace_back("error", scores[i].problem);
    }
    name_figures(out);
    return out;
  }

 private:
  static void name_figures(EvalRun& out) {
    out.primary = "acc";
    out.exponents = {"perplexity"};
    out.lower = {"perplexity", "bits_per_byte"};
  }

  static void add_figures(EvalSample& sample, double likelihood, bool written) {
    sample.metrics = {{"acc", {written ? 1.0 : 0.0}},
                      {"perplexity", {-likelihood}},
                      {"bits_per_byte", {-likelihood / std::log(2.0), static_cast<double>(sample.target.size())}}};
    sample.details = {{"logp", likelihood}, {"correct", written}};
  }

  // True for texts that the engine generates at temperature 0.
  static std::vector<bool> greedy_matches(Engine& engine, const std::vector<Continuation>& texts) {
    std::vector<GenerationRequest> requests;
    for (const Continuation& text : texts) {
      const auto middle = text.ids.begin() + static_cast<std::ptrdiff_t>(text.first);
      GenerationRequest& request = requests.emplace_back();
      request.prompt.assign(text.ids.begin(), middle);
      request.sampling.temperature = 0;
      request.sampling.max_tokens = text.ids.end() - middle;
      request.sampling.ignore_eos = true;
    }
    const std::vector<std::vector<CompletionOutput>> completions = engine.generate(std::move(requests));
    std::vector<bool> out;
    for (size_t i = 0; i < texts.size(); ++i) {
      const CompletionOutput& completion = completions[i].front();
      HONE_CHECK(!completion.failed, "eval: ", completion.finish_reason);
      out.push_back(std::equal(completion.ids.begin(), completion.ids.end(),
                               texts[i].ids.begin() + static_cast<std::ptrdiff_t>(texts[i].first), texts[i].ids.end()));
    }
    return out;
  }

  PromptSource source_;
  std::string target_ = " {continuation}";
};

[[maybe_unused]] const bool added =
    eval_kinds().add("loglikelihood", [] { return std::unique_ptr<EvalTask>(new LogLikelihood); });

}  // namespace
}  // namespace hone
