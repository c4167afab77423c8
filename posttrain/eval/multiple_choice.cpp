// The choice whose text the model finds likeliest behind the prompt: accuracy by summed log-probability, and by log-probability a byte (acc_norm).
#include <algorithm>
#include <chrono>

#include "core/log.h"
#include "core/model/score.h"
#include "posttrain/dataset.h"
#include "posttrain/eval/task.h"

namespace hone {
namespace {

class MultipleChoice : public EvalTask {
 public:
  void fields(Fields& f) override {
    rows_.fields(f);
    f("prompt", prompt_, "template of the prompt");
    f("choices", choices_, "member of the row that holds the list of choices");
    f("gold", gold_, "member that holds the right one: its index, its letter, or its text");
    f("choice", choice_, "template of a choice as it follows the prompt; {choice} is its text");
  }

  EvalResult run(EvalModel& on, const EvalOptions& options) const override {
    const auto start = std::chrono::steady_clock::now();
    RowSource source = rows_;
    if (options.limit > 0) source.limit = options.limit;
    std::vector<Problem> problems;
    read_rows(source, [&](const Json& row, const std::string& where) { problems.push_back(problem(row, where)); });
    EvalResult out;
    out.kind = "multiple_choice";
    out.num_problems = static_cast<int64_t>(problems.size());
    double right = 0, right_by_byte = 0;
    log::Progress progress("eval", out.num_problems, "problem");
    for (size_t i = 0; i < problems.size(); ++i) {
      const Problem& p = problems[i];
      const std::vector<double> logp = score(on, p, out.num_tokens);
      size_t best = 0, best_by_byte = 0;
      const auto by_byte = [&](size_t c) { return logp[c] / static_cast<double>(std::max<size_t>(1, p.choices[c].size())); };
      for (size_t c = 1; c < logp.size(); ++c) {
        if (logp[c] > logp[best]) best = c;
        if (by_byte(c) > by_byte(best_by_byte)) best_by_byte = c;
      }
      right += best == p.gold;
      right_by_byte += best_by_byte == p.gold;
      if (on.record) on.record(JsonObject{{"task", p.where}, {"prompt", p.prompt}, {"choices", Json::array(p.choices)}, {"gold", p.gold}, {"choice", best}, {"logp", Json::array(logp)}});
      progress.update(static_cast<int64_t>(i) + 1);
    }
    out.accuracy = proportion(right, out.num_problems);
    out.metrics["acc_norm"] = right_by_byte / static_cast<double>(out.num_problems);
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return out;
  }

 private:
  struct Problem {
    std::string where, prompt;
    std::vector<std::string> choices;
    size_t gold = 0;
  };

  Problem problem(const Json& row, const std::string& where) const {
    Problem out;
    out.where = where;
    out.prompt = fill_template(prompt_, row, where);
    for (const Json& choice : row.at(choices_, where).as_array(where)) out.choices.push_back(fill_template(choice_, JsonObject{{"choice", choice}}, where));
    HONE_CHECK(out.choices.size() >= 2, where, ": '", choices_, "' has ", out.choices.size(), " choices, at least 2 are needed");
    out.gold = gold(row.at(gold_, where), row.at(choices_, where).as_array(where), where);
    return out;
  }
  static size_t gold(const Json& value, const JsonArray& choices, const std::string& where) {
    size_t out = choices.size();
    if (value.is_number()) {
      out = static_cast<size_t>(value.as_int(where));
    } else {
      const std::string& text = value.as_string(where);
      for (size_t c = 0; c < choices.size(); ++c)
        if (choices[c].is_string() && choices[c].as_string() == text) out = c;
      if (out == choices.size() && text.size() == 1 && text[0] >= 'A') out = static_cast<size_t>(text[0] - 'A');
    }
    HONE_CHECK(out < choices.size(), where, ": the right choice is ", value.dump(), ", there are ", choices.size());
    return out;
  }
  static std::vector<double> score(EvalModel& on, const Problem& problem, int64_t& num_tokens) {
    const std::vector<int32_t> prompt = on.tokenizer.encode_document(problem.prompt);
    std::vector<std::vector<int32_t>> sequences;
    for (const std::string& choice : problem.choices) {
      std::vector<int32_t> ids = prompt;
      const std::vector<int32_t> tail = on.tokenizer.encode(choice);
      ids.insert(ids.end(), tail.begin(), tail.end());
      const int64_t longest = on.model.shape().max_positions;
      HONE_CHECK(static_cast<int64_t>(ids.size()) <= longest, problem.where, ": ", ids.size(), " tokens, the model takes ", longest);
      num_tokens += static_cast<int64_t>(ids.size());
      sequences.push_back(std::move(ids));
    }
    const std::vector<TokenScores> scores = score_sequences(on.context, on.model, sequences, {});
    std::vector<double> out;
    for (const TokenScores& s : scores) {
      double sum = 0;
      for (size_t t = prompt.size(); t < s.logp.size(); ++t) sum += s.logp[t];
      out.push_back(sum);
    }
    return out;
  }

  RowSource rows_;
  std::string prompt_ = "{query}", choices_ = "choices", gold_ = "gold", choice_ = " {choice}";
};

[[maybe_unused]] const bool added = eval_kinds().add("multiple_choice", [] { return std::unique_ptr<EvalTask>(new MultipleChoice); });

}  // namespace
}  // namespace hone
