// Evaluation kind "loglikelihood": how likely a text is after its prompt, and whether greedy decoding generates it.
// Metrics are LAMBADA's perplexity (per text, not per token: exp(-mean log-likelihood), as in lm-evaluation-harness)
// and acc, and bits per byte of the texts.
#include <cmath>

#include "data/row_template.h"
#include "eval/endpoint.h"
#include "eval/likelihood.h"
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
  void check_rows(const EvalOptions& options) const override {
    for (const EvalExample& doc : load_rows(options, RowsToLoad::first_of_files)) {
      PromptRenderer(source_, options).task(doc);
      target_of(doc);
    }
  }
  void each_row(const std::function<void(const Json&, const std::string&)>& row) const override {
    read_rows(source_.rows, row);
  }
  int64_t num_fewshot(const EvalOptions& options) const override { return source_.shots(options); }

  EvalRun run(EvalTarget& target, const EvalOptions& options) const override {
    const std::vector<EvalExample> docs = load_rows(options);
    const PromptRenderer renderer(source_, options);
    const LikelihoodJob job{.docs = docs,
                            .renderer = renderer,
                            .max_length = target.model.shape().max_positions,
                            .greedy = true,
                            .texts = [&](size_t i) -> std::vector<ContinuationText> {
                              return {{"", target_of(docs[i])}};
                            }};
    EvalRun out;
    compute_likelihoods(target, job, out, [&](size_t i, ProblemLikelihoods likelihoods) {
      EvalSample& sample = out.samples.emplace_back(make_sample(docs[i]));
      sample.prompt = std::move(likelihoods.prompt);
      sample.target = target_of(docs[i]);
      add_figures(sample, likelihoods.logp.front(), likelihoods.greedy.front());
    });
    name_figures(out);
    return out;
  }

  EvalRun run_remote(Endpoint& endpoint, const EvalOptions& options) const override {
    const std::vector<EvalExample> docs = load_rows(options);
    const PromptRenderer renderer(source_, options);
    std::vector<ScoredText> texts;
    for (const EvalExample& doc : docs) texts.push_back({doc.where, plain_prompt(renderer.task(doc)), target_of(doc)});
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
  std::string target_of(const EvalExample& doc) const { return fill_template(target_, doc.row, doc.where); }
  std::vector<EvalExample> load_rows(const EvalOptions& options, RowsToLoad which = RowsToLoad::all) const {
    return source_.load(
        options, [&](const Json& row, const std::string& where) { return fill_template(target_, row, where); }, which);
  }

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

  PromptSource source_;
  std::string target_ = " {continuation}";
};

[[maybe_unused]] const bool added =
    eval_kinds().add("loglikelihood", [] { return std::unique_ptr<EvalTask>(new LogLikelihood); });

}  // namespace
}  // namespace hone
