// The "r1_zero" reward (Guo et al. 2025; graded as in Liu et al. 2025, "Understanding R1-Zero-like training"). The
// completion must close its thoughts and give the answer in tags, "... </think> <answer> 18 </answer>", and the answer
// must be strictly right. parts: format, answer; the score is 1 if both are 1. With from = "boxed" the required form is
// a \boxed{} anywhere.
#include <algorithm>

#include "rewards/answers/box_context.h"
#include "rewards/answers/spans.h"
#include "rewards/answers/text.h"
#include "rewards/math/compare.h"
#include "rewards/reward.h"

namespace hone {

namespace {

class R1Zero : public Reward {
 public:
  void fields(Fields& f) override {
    f("from", from_, "where the answer is: \"answer_tag\" or \"boxed\"");
    f("allow_whitespace", allow_whitespace_,
      "allow any white space between </think> and <answer>; false: exactly one space");
    f("format_score", format_score_, "score of a completion in the right form with a wrong answer");
  }
  void prepare() override {
    HONE_CHECK(from_ == "answer_tag" || from_ == "boxed", "from is '", from_,
               "'; it must be \"answer_tag\" or \"boxed\"");
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    std::string answer;
    const bool formed = find(completion.text, answer);
    const bool right = formed && matches(task, answer);
    RewardScore out{.score = right ? 1.0 : formed ? format_score_ : 0.0};
    out.parts = {{"answer", right ? 1.0 : 0.0}, {"format", formed ? 1.0 : 0.0}};
    if (!formed) out.note = from_ == "boxed" ? "no \\boxed{}" : "not of the form </think> <answer> </answer>";
    if (formed && !right) out.note = "expected " + excerpt(task.answer) + ", got " + excerpt(answer);
    return out;
  }
  bool reads_answers(const Task&) const override { return true; }
  std::optional<std::string> read_answer(const Task&, const Completion& completion) const override {
    std::string answer;
    if (!find(completion.text, answer)) return std::nullopt;
    answer = unboxed(std::move(answer));
    return trimmed(answer).empty() ? std::nullopt : std::optional(answer);
  }
  bool same_answers(const Task&, const std::string& a, const std::string& b) const override {
    const MathPolicy policy{.strict = true};
    return math_equal(a, b, policy) || math_equal(b, a, policy);
  }

 private:
  bool find(std::string_view text, std::string& answer) const {
    return from_ == "boxed" ? boxed(text, answer) : tagged(text, answer);
  }
  // Reads the last box. Boxes that form one list with it are read as that list unless all have the same value. A box
  // whose value the surrounding text changes or negates gives no answer.
  static bool boxed(std::string_view text, std::string& answer) {
    constexpr size_t most_boxes = 16;
    const auto boxes = find_boxes(text, most_boxes);
    if (boxes.empty()) return false;
    const MathSpan& last = boxes.back();
    const auto changed = [&](const MathSpan& box) { return changes_box_value(text, box) || denies_box(text, box); };
    const auto differs = [&](const MathSpan& box) {
      return !math_equal(last.content(text), box.content(text), {.strict = true});
    };
    answer =
        std::any_of(boxes.begin(), boxes.end(), differs) ? joined_spans(text, boxes) : std::string(last.content(text));
    answer = with_multiplier(std::move(answer), text.substr(last.end));
    if (std::any_of(boxes.begin(), boxes.end(), changed)) answer = "";
    return true;
  }
  // Reads the last answer block. A box inside it is the answer.
  bool tagged(std::string_view text, std::string& answer) const {
    constexpr std::string_view open = "<answer>", close = "</answer>";
    if (!thoughts_end_before_answer(text) || text.find(close) == std::string_view::npos) return false;
    text.remove_prefix(text.rfind(open) + open.size());
    for (size_t end; (end = text.find(close)) != std::string_view::npos; text.remove_prefix(end + close.size()))
      answer += text.substr(0, end);
    answer += text;
    if (answer.find("\\boxed") != std::string::npos) {
      std::string inside;
      answer = boxed(answer, inside) ? inside : "";
    }
    return true;
  }
  bool thoughts_end_before_answer(std::string_view text) const {
    if (!allow_whitespace_) return text.find("</think> <answer>") != std::string_view::npos;
    constexpr std::string_view thought = "</think>";
    for (size_t at; (at = text.find(thought)) != std::string_view::npos;) {
      text = text.substr(at + thought.size());
      const size_t next = text.find_first_not_of(" \t\r\n\v\f");
      if (next != std::string_view::npos && text.substr(next).starts_with("<answer>")) return true;
    }
    return false;
  }
  // Returns the content of a box inside the answer, if there is one.
  static std::string unboxed(const std::string& answer) {
    std::string inside;
    return boxed(answer, inside) ? inside : answer;
  }
  // Returns true if any reference matches, since a row may list several.
  static bool matches(const Task& task, std::string found) {
    const MathPolicy policy{.strict = true};
    const std::string answer = unboxed(std::move(found));
    const Json* list = task.columns.is_object() ? task.columns.find("answer") : nullptr;
    if (!list || !list->is_array()) return math_equal(task.answer, answer, policy);
    for (const Json& one : list->as_array())
      if (math_equal(one.is_string() ? one.as_string() : one.dump(), answer, policy)) return true;
    return false;
  }

  std::string from_ = "answer_tag";
  bool allow_whitespace_ = false;
  double format_score_ = 0;
};

[[maybe_unused]] const bool added = rewards().add("r1_zero", [] { return std::unique_ptr<Reward>(new R1Zero); });

}  // namespace

}  // namespace hone
