// The choice that the model finds likeliest: accuracy by summed log-probability, and by log-probability a byte (acc_norm). What is scored is the
// choice's text behind the prompt, or, where choices are beginnings (Winograd schemas), the continuation that they share.
#include <algorithm>

#include "core/log.h"
#include "core/model/score.h"
#include "core/stopwatch.h"
#include "posttrain/dataset.h"
#include "posttrain/eval/task.h"
#include "posttrain/row_template.h"

namespace hone {
namespace {

struct Problem {
  std::string where, prompt;
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

size_t likeliest(const std::vector<double>& logp) { return static_cast<size_t>(std::max_element(logp.begin(), logp.end()) - logp.begin()); }

class MultipleChoice : public EvalTask {
 public:
  void fields(Fields& f) override {
    rows_.fields(f);
    f("prompt", prompt_, "template of the prompt");
    f("choices", choices_, "member of the row that holds the list of choices");
    f("gold", gold_, "member that holds the right one: its index, its letter, or its text");
    f("choice", choice_, "template of a choice as it follows the prompt; {choice} is its text, {letter} its letter");
    f("continuation", continuation_, "template of a text that follows every choice and is scored in its place; empty = the choice is scored");
  }

  EvalResult run(EvalModel& on, const EvalOptions& options) const override {
    const Stopwatch watch;
    RowSource source = rows_;
    if (options.limit > 0) source.limit = options.limit;
    std::vector<Problem> problems;
    read_rows(source, [&](const Json& row, const std::string& where) { problems.push_back(problem(row, where)); });
    Scorer scorer(on);
    log::Progress progress("eval", static_cast<int64_t>(problems.size()), "problem");
    for (size_t i = 0; i < problems.size(); ++i) {
      scorer.add(problems[i]);
      if (scorer.full() || i + 1 == problems.size()) scorer.flush();
      progress.update(static_cast<int64_t>(i) + 1);
    }
    EvalResult out = scorer.result();
    out.seconds = watch.seconds();
    return out;
  }

 private:
  // Scores problems together, some thousands of tokens at once.
  class Scorer {
   public:
    explicit Scorer(EvalModel& on) : on_(on) {}
    bool full() const { return waiting_tokens_ >= 8192; }

    void add(const Problem& problem) {
      const auto longest = static_cast<size_t>(on_.model.shape().max_positions);
      bool cut = false;
      for (const std::string& choice : problem.choices) {
        const bool shared = !problem.continuation.empty();
        std::vector<int32_t> ids = on_.tokenizer.encode_document(problem.prompt + (shared ? choice : ""));
        const std::vector<int32_t> scored = on_.tokenizer.encode(shared ? problem.continuation : choice);
        HONE_CHECK(scored.size() < longest, problem.where, ": a choice of ", scored.size(), " tokens, the model takes ", longest);
        if (ids.size() + scored.size() > longest) {
          ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(longest - scored.size()));
          cut = true;
        }
        first_scored_.push_back(std::max<size_t>(1, ids.size()));
        ids.insert(ids.end(), scored.begin(), scored.end());
        waiting_tokens_ += static_cast<int64_t>(ids.size());
        sequences_.push_back(std::move(ids));
      }
      num_cut_ += cut;
      waiting_.push_back(&problem);
    }

    void flush() {
      const std::vector<TokenScores> scores = score_sequences(on_.context, on_.model, sequences_, {});
      size_t next = 0;
      for (const Problem* problem : waiting_) {
        std::vector<double> logp, logp_a_byte;
        for (const std::string& choice : problem->choices) {
          double sum = 0;
          for (size_t t = first_scored_[next]; t < scores[next].logp.size(); ++t) sum += scores[next].logp[t];
          ++next;
          logp.push_back(sum);
          logp_a_byte.push_back(sum /
                                static_cast<double>(std::max<size_t>(1, (problem->continuation.empty() ? choice : problem->continuation).size())));
        }
        judge(*problem, logp, logp_a_byte);
      }
      num_tokens_ += waiting_tokens_;
      waiting_.clear(), sequences_.clear(), first_scored_.clear();
      waiting_tokens_ = 0;
    }

    EvalResult result() const {
      EvalResult out;
      out.kind = "multiple_choice";
      out.num_problems = num_problems_;
      out.num_tokens = num_tokens_;
      out.accuracy = proportion(right_, num_problems_);
      out.metrics["acc_norm"] = right_by_byte_ / static_cast<double>(num_problems_);
      if (num_cut_ > 0) {
        out.metrics["cut"] = static_cast<double>(num_cut_);
        log::warning("eval: ", num_cut_, " of ", num_problems_, " prompts are longer than the model's ", on_.model.shape().max_positions,
                     " positions and lost their beginning");
      }
      return out;
    }

   private:
    void judge(const Problem& problem, const std::vector<double>& logp, const std::vector<double>& logp_a_byte) {
      const size_t best = likeliest(logp);
      right_ += best == problem.gold;
      right_by_byte_ += likeliest(logp_a_byte) == problem.gold;
      ++num_problems_;
      if (on_.record)
        on_.record(JsonObject{{"task", problem.where},
                              {"prompt", problem.prompt},
                              {"choices", Json::array(problem.choices)},
                              {"gold", problem.gold},
                              {"choice", best},
                              {"logp", Json::array(logp)}});
    }

    EvalModel& on_;
    std::vector<const Problem*> waiting_;
    std::vector<std::vector<int32_t>> sequences_;
    std::vector<size_t> first_scored_;  // of each sequence
    int64_t waiting_tokens_ = 0, num_tokens_ = 0, num_problems_ = 0, num_cut_ = 0;
    double right_ = 0, right_by_byte_ = 0;
  };

  Problem problem(const Json& row, const std::string& where) const {
    Problem out;
    out.where = where;
    out.prompt = fill_template(prompt_, row, where);
    if (!continuation_.empty()) out.continuation = fill_template(continuation_, row, where);
    const JsonArray& choices = row.at(choices_, where).as_array(concat(where, ": ", choices_));
    HONE_CHECK(choices.size() >= 2 && choices.size() <= 26, where, ": '", choices_, "' has ", choices.size(), " choices, it takes 2 to 26");
    for (size_t c = 0; c < choices.size(); ++c)
      out.choices.push_back(fill_template(choice_, JsonObject{{"choice", choices[c]}, {"letter", letter_of(c)}}, where));
    out.gold = find_gold(row.at(gold_, where), choices, where);
    return out;
  }

  RowSource rows_;
  std::string prompt_ = "{query}", choices_ = "choices", gold_ = "gold", choice_ = " {choice}", continuation_;
};

[[maybe_unused]] const bool added = eval_kinds().add("multiple_choice", [] { return std::unique_ptr<EvalTask>(new MultipleChoice); });

}  // namespace
}  // namespace hone
