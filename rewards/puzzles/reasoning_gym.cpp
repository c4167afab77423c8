// The "reasoning_gym" reward. The row names the puzzle's family (task) and describes the puzzle (metadata). Families
// with several right answers have a judge (rewards/puzzles/puzzle.h). Other families compare the answer with the
// reference.
#include "core/io/file.h"
#include "rewards/answers/answer_text.h"
#include "rewards/answers/text.h"
#include "rewards/puzzles/puzzle.h"
#include "rewards/reward.h"

namespace hone {

Registry<PuzzleJudge>& puzzle_judges() {
  static Registry<PuzzleJudge> registry("family of puzzles");
  return registry;
}

namespace {

class ReasoningGym : public Reward {
 public:
  void fields(Fields& f) override {
    f("family", family_, "column with the family");
    f("metadata", metadata_, "column with the puzzle, for families with several right answers");
    f("words", words_file_,
      "dictionary file for word_ladder, one word per line; empty = only the words of the reference are known");
  }
  void prepare() override {
    words_.clear();
    if (words_file_.empty()) return;
    const std::string text = read_file(expand_path(words_file_));
    for (const std::string_view word : split(text, "\n"))
      if (!word.empty()) words_.insert(upper(word));
    HONE_CHECK(!words_.empty(), "words: ", words_file_, " has no words");
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    const std::string where = "reward reasoning_gym: task '" + task.id + "'";
    const std::string& family = task.columns.at(family_, where).as_string(where + ": " + family_);
    const PuzzleJudge* judge = puzzle_judges().find(family);
    const std::string_view answer = final_answer(completion.text);
    // An empty text is a valid reference if the row has it: a program of family "ab" may reduce to nothing.
    const Json* written = task.columns.find("answer");
    HONE_CHECK(judge || !task.answer.empty() || (written && written->is_string()), where, " of family '", family,
               "' has no answer");
    if (answer.empty() && trimmed(completion.text).empty()) return {.score = 0, .note = "no answer found"};
    if (answer.size() > longest_puzzle_answer) return {.score = 0, .note = "too long for an answer"};
    static const Json none{JsonObject{}};
    const Json* metadata = task.columns.find(metadata_);
    const double score = judge ? (*judge)({metadata ? *metadata : none, task.answer, words_}, answer)
                         : same_answer(task.answer, answer) ? 1.0
                                                            : 0.0;
    if (score == 1) return {.score = 1};
    if (score > 0) return {.score = score, .note = "solved, not at its best"};
    return {.score = 0,
            .note = (task.answer.empty() ? "no solution: " : "expected " + excerpt(task.answer) + ", got ") +
                    excerpt(answer)};
  }
  // Families with a judge have several right answers. Two different answers may both be right, so votes make no sense.
  bool reads_answers(const Task& task) const override {
    const Json* family = task.columns.find(family_);
    return family && family->is_string() && !puzzle_judges().find(family->as_string());
  }
  std::optional<std::string> read_answer(const Task&, const Completion& completion) const override {
    const std::string_view answer = final_answer(completion.text);
    return answer.empty() || answer.size() > longest_puzzle_answer ? std::nullopt : std::optional<std::string>(answer);
  }
  bool same_answers(const Task&, const std::string& a, const std::string& b) const override {
    return same_answer(a, b);
  }

 private:
  std::string family_ = "task", metadata_ = "metadata", words_file_;
  std::unordered_set<std::string> words_;
};

[[maybe_unused]] const bool added =
    rewards().add("reasoning_gym", [] { return std::unique_ptr<Reward>(new ReasoningGym); });

}  // namespace

}  // namespace hone
