// The choice that the model finds likeliest, by log-likelihood (acc), by log-likelihood a character of the choice
// (acc_norm, as lm-evaluation-harness computes it) and a byte (acc_bytes). What is scored is the choice's text behind
// the prompt, or, where choices are beginnings (Winograd schemas, partial scoring), the continuation that they share.
#include <algorithm>

#include "core/base/log.h"
#include "core/text/unicode/unicode.h"
#include "data/row_template.h"
#include "eval/continuation.h"
#include "eval/prompts.h"
#include "eval/task.h"
#include "rewards/answers/text.h"

namespace hone {
namespace {

struct Problem {
  std::vector<std::string> choices;  // as they follow the prompt
  std::string continuation;          // what is scored behind each choice; empty: the choice itself is
  size_t gold = 0;
};

std::string letter_of(size_t index) { return std::string(1, static_cast<char>('A' + index)); }

// An index, a letter, or a choice's text.
size_t find_gold(const Json& value, const JsonArray& choices, const std::string& where) {
  size_t out = choices.size();
  if (value.is_number()) {
    out = static_cast<size_t>(value.as_int(where));
  } else {
    const std::string& text = value.as_string(where);
    if (text.size() == 1 && text[0] >= 'A') out = static_cast<size_t>(text[0] - 'A');
    for (size_t c = 0; c < choices.size() && out >= choices.size(); ++c)
      if (choices[c].is_string() && choices[c].as_string() == text) out = c;
  }
  HONE_CHECK(out < choices.size(), where, ": the right choice is ", value.dump(), ", there are ", choices.size());
  return out;
}

// The first of the largest.
size_t likeliest(const std::vector<double>& logp) {
  return static_cast<size_t>(std::max_element(logp.begin(), logp.end()) - logp.begin());
}

double num_characters(std::string_view text) {
  double count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += code_point_at(text, at).length;
  return count;
}

class MultipleChoice : public EvalTask {
 public:
  MultipleChoice() { source_.prompt = "{query}"; }
  void fields(Fields& f) override {
    source_.fields(f);
    f("choices", choices_, "member of the row that holds the list of choices");
    f("gold", gold_, "member that holds the right one: its index, its letter, or its text");
    f("choice", choice_, "template of a choice as it follows the prompt; {choice} is its text, {letter} its letter");
    f("continuation", continuation_,
      "template of a text that follows every choice and is scored in its place; empty = the choice is scored");
  }
  void each_row(const std::function<void(const Json&, const std::string&)>& row) const override {
    read_rows(source_.rows, row);
  }
  int64_t num_fewshot(const EvalOptions& options) const override { return source_.shots(options); }

  EvalRun run(EvalTarget& on, const EvalOptions& options) const override {
    const std::vector<EvalExample> docs = source_.load(options, [&](const Json& row, const std::string& where) {
      const Problem example = problem(row, where);
      return example.choices[example.gold] + example.continuation;
    });
    const PromptRenderer renderer(source_, options);
    ContinuationEncoder encoder(renderer, on.tokenizer,
                                on.model.shape().max_positions + 1);  // the last token is not read
    log::Progress progress("eval", static_cast<int64_t>(docs.size()), "problem");
    EvalRun out;
    int64_t num_cut = 0;
    for (size_t begin = 0; begin < docs.size();) {
      std::vector<Problem> problems;
      std::vector<Continuation> waiting;
      int64_t waiting_tokens = 0;
      size_t end = begin;
      for (; end < docs.size() && waiting_tokens < 8192; ++end) {
        const Problem& one = problems.emplace_back(problem(docs[end].row, docs[end].where));
        const bool shared = !one.continuation.empty();
        bool cut = false;
        for (const std::string& choice : one.choices) {
          waiting.push_back(shared ? encoder.encode(docs[end], choice, one.continuation)
                                   : encoder.encode(docs[end], "", choice));
          waiting_tokens += static_cast<int64_t>(waiting.back().ids.size());
          cut = cut || waiting.back().cut;
        }
        num_cut += cut;
      }
      const std::vector<double> logp = log_likelihoods(on, waiting);
      auto from = logp.begin();
      for (size_t i = begin; i < end; ++i) {
        const Problem& one = problems[i - begin];
        const auto count = static_cast<std::ptrdiff_t>(one.choices.size());
        out.samples.push_back(judged(docs[i], one, {from, from + count}));
        out.samples.back().prompt = PromptRenderer::shown(renderer.task(docs[i]));
        from += count;
      }
      out.num_tokens += waiting_tokens;
      begin = end;
      progress.update(static_cast<int64_t>(end));
    }
    out.primary = "acc";
    if (num_cut > 0) {
      out.facts["cut"] = static_cast<double>(num_cut);
      log::warning("eval: ", num_cut, " of ", docs.size(), " prompts are longer than the model's ",
                   on.model.shape().max_positions, " positions and lost their beginning");
    }
    return out;
  }

 private:
  static EvalSample judged(const EvalExample& doc, const Problem& one, const std::vector<double>& logp) {
    EvalSample out = make_sample(doc);
    std::vector<double> a_character, a_byte;
    for (size_t c = 0; c < logp.size(); ++c) {
      const std::string_view scored = trimmed(one.continuation.empty() ? one.choices[c] : one.continuation);
      a_character.push_back(logp[c] / std::max(1.0, num_characters(scored)));
      a_byte.push_back(logp[c] / std::max(1.0, static_cast<double>(scored.size())));
    }
    const auto right = [&](const std::vector<double>& scores) {
      return Observation{likeliest(scores) == one.gold ? 1.0 : 0.0};
    };
    out.target = one.choices[one.gold];
    out.metrics = {{"acc", right(logp)}, {"acc_norm", right(a_character)}, {"acc_bytes", right(a_byte)}};
    out.details = {{"choices", Json::array(one.choices)},
                   {"gold", one.gold},
                   {"choice", likeliest(logp)},
                   {"logp", Json::array(logp)},
                   {"correct", likeliest(logp) == one.gold}};
    return out;
  }

  Problem problem(const Json& row, const std::string& where) const {
    Problem out;
    if (!continuation_.empty()) out.continuation = fill_template(continuation_, row, where);
    const JsonArray& choices = row.at(choices_, where).as_array(concat(where, ": ", choices_));
    HONE_CHECK(choices.size() >= 2 && choices.size() <= 26, where, ": '", choices_, "' has ", choices.size(),
               " choices, it takes 2 to 26");
    for (size_t c = 0; c < choices.size(); ++c)
      out.choices.push_back(
          fill_template(choice_, JsonObject{{"choice", choices[c]}, {"letter", letter_of(c)}}, where));
    out.gold = find_gold(row.at(gold_, where), choices, where);
    return out;
  }

  PromptSource source_;
  std::string choices_ = "choices", gold_ = "gold", choice_ = " {choice}", continuation_;
};

[[maybe_unused]] const bool added =
    eval_kinds().add("multiple_choice", [] { return std::unique_ptr<EvalTask>(new MultipleChoice); });

}  // namespace
}  // namespace hone
