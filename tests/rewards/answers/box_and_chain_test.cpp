// The text around a box or an equality decides whether it is an answer: factors, signs, negations, false chains,
// suppositions, lists.
#include <string>
#include <vector>

#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone {

namespace {

void expect_paid(const std::string& spec, const std::string& reference, const std::vector<std::string>& texts,
                 int paid) {
  const auto reward = make_reward(spec);
  const Task task{.id = "t", .prompt = "", .messages = {}, .answer = reference, .columns = {}};
  for (const std::string& text : texts)
    EXPECT_EQ(reward->score(task, {.ids = {}, .text = text, .finish_reason = "stop"}).score, paid)
        << spec << ": " << reference << " | " << text;
}

// clang-format off
const std::vector<std::string> changed_boxes = {
    "2\\boxed{18}", "$2\\boxed{18}$", "-\\boxed{18}", "$-\\boxed{18}$", 
    
    "\\boxed{18}^2", 
    
    
    "x > \\boxed{18}", "x < \\boxed{18}", "x \\ne \\boxed{18}", "x \\not= \\boxed{18}",
    "not \\boxed{18}", "The answer is not \\boxed{18}", "It isn't \\boxed{18}",
    "It cannot be \\boxed{18}.", "\\boxed{18} is wrong", "\\boxed{18} is not the answer", "\\boxed{18} isn't right", "twice \\boxed{18}",
    "half of \\boxed{18}", "minus \\boxed{18}", "\\boxed{18} squared", "\\boxed{18} million", "\\boxed{18} or 19", 
    "不是\\boxed{18}", "\\boxed{17}\\boxed{18}", "\\boxed{17}, \\boxed{18}", "\\boxed{17} or \\boxed{18}", "\\boxed{0 = 18}",
    "\\boxed{2x = 18}", "\\boxed{x^2 = 18}"};
// By convention the content of the box is the answer, although the formula continues.
const std::vector<std::string> boxed_parts = {
    "2$\\boxed{18}$",
    "$-$$\\boxed{18}$",
    "-\\$\\boxed{18}",
    "\\frac{1}{2}\\boxed{18}",
    "\\frac{\\boxed{18}}{2}",
    "\\frac{1}{\\boxed{18}}",
    "\\sqrt{\\boxed{18}}",
    "2^{\\boxed{18}}",
    "$\\boxed{18}$^2",
    "$\\boxed{18}!$",
    "\\boxed{18}x",
    "x\\boxed{18}",
    "\\pi\\boxed{18}",
    "$\\boxed{18}\\pi$",
    "1 + \\boxed{18}",
    "17 - \\boxed{18}",
    "\\boxed{18} + 1",
    "\\boxed{18}/2",
    "2 \\cdot \\boxed{18}",
    "2*\\boxed{18}",
    "2 \\times \\boxed{18}",
    "\\boxed{18}:1",
    "1:\\boxed{18}",
    "\\pm\\boxed{18}",
    "(\\boxed{18}, 17)",
    "(17, \\boxed{18})",
    "$2(\\boxed{18})$",
    "x \\ge \\boxed{18}",
    "x ≥ \\boxed{18}",
    
    "Is it \\boxed{18}?",
    
    "$x^3 + \\boxed{18}x^2$",
    "$-\\frac32-\\boxed{18}$"};
const std::vector<std::string> plain_boxes = {
    "\\boxed{18}", "**\\boxed{18}**", "- \\boxed{18}", "$x = \\boxed{18}$", "$\\$\\boxed{18}$", "\\boxed{18} dollars", "\\boxed{18}.",
    "\\boxed{18}!", "$\\boxed{18}$ (not 17).", "the total ($\\boxed{18}$) is right", "\\boxed{18}\\text{ cm}^2", "$\\boxed{18}^\\circ$",
    "$2x + 1 = 37 \\Rightarrow x = \\boxed{18}$", "$3!=6$, so $36/2=\\boxed{18}$", "$4!-6=\\boxed{18}$", "$x \\equiv \\boxed{18} \\pmod{20}$",
    "\\begin{align*}x&=9\\cdot 2\\\\&=\\boxed{18}\\end{align*}", "\\boxed{18}\\boxed{18}", "\\boxed{18} and \\boxed{18}",
    "It is not 17 but \\boxed{18}.", "The answer isn't 17, it is \\boxed{18}.", "$\\boxed{18}$ 3-digit numbers", "Step 2: \\boxed{18}",
    "since $0 < x$, we see that $x \\ge \\boxed{18}$, which is attained"};
// clang-format on

TEST(BoxContext, TheTextAroundABoxMayChangeItsValue) {
  for (const char* reward : {"math", "number"}) {
    expect_paid(reward, "18", changed_boxes, 0);
    expect_paid(reward, "18", plain_boxes, 1);
    expect_paid(reward, "18", boxed_parts, 1);
  }
}

TEST(BoxContext, HoldsForTagsToo) {
  const auto tagged = [](std::vector<std::string> texts) {
    for (std::string& text : texts) text = "so </think> <answer>" + text + "</answer>";
    return texts;
  };
  expect_paid("r1_zero", "18", tagged(changed_boxes), 0);
  expect_paid("r1_zero", "18",
              tagged({"\\boxed{18}", "\\boxed{18}\\boxed{18}", "\\boxed{18} and \\boxed{18}", "$x = \\boxed{18}$",
                      "first \\boxed{17}, but that is too small, since there is one more; it is \\boxed{18}"}),
              1);
  expect_paid("{kind = 'r1_zero', from = 'boxed'}", "18", {"\\boxed{17}\\boxed{18}", "-\\boxed{18}"}, 0);
}

TEST(BoxContext, AMultiplierAfterABoxBelongsToIt) {
  expect_paid("math", "2000000", {"\\boxed{2} million", "$\\boxed{2}$ million dollars", "$\\boxed{2}\\text{ million}$"},
              1);
  expect_paid("math", "\\frac{1}{2}", {"\\boxed{\\frac{1}{2}}, or \\boxed{0.5}"}, 1);
}

TEST(Chains, AFalseEqualityOrOneThatStatesNoValueDoesNotScore) {
  const std::vector<std::string> wrong = {"0 = 18",
                                          "17 = 18",
                                          "5 + 5 = 18",
                                          "1 = 2 = 18",
                                          "2x = 18",
                                          "2 x = 18",
                                          "x^2 = 18",
                                          "x + 1 = 18",
                                          "x/2 = 18",
                                          "|x| = 18",
                                          "-x = 18",
                                          "xy = 18",
                                          "x + y = 18",
                                          "\\sqrt{x} = 18",
                                          "The answer is 2x = 18",
                                          "#### 2x = 18",
                                          "18 \\ne 18",
                                          "18 ≠ 18",
                                          "x != 18",
                                          "x >= 18",
                                          "17, 18",
                                          "17; 18",
                                          "x = 17, y = 18",
                                          "16, 17, 18",
                                          "The answers are 17, 18.",
                                          "Let x = 18.",
                                          "Suppose x = 18.",
                                          "Assume x = 18",
                                          "if x = 18",
                                          "y = 17 when x = 18",
                                          "Given that x = 18",
                                          "nothing equals 18",
                                          "No number equals 18",
                                          "nobody gets 18",
                                          "none is 18",
                                          "isn't 18",
                                          "It can't be 18",
                                          "18 not",
                                          "all but 18",
                                          "I doubt it is 18",
                                          "Imagine x = 18",
                                          "Consider x = 18",
                                          "Try 18",
                                          "答えは18ではない",

                                          "not 18",
                                          "18-gon",
                                          "an 18-sided polygon",
                                          "18-fold",
                                          "Es ist nicht 18",
                                          "Ce n'est pas 18",
                                          "No es 18",
                                          "答案不是18",
                                          "答案是17，不是18",
                                          "答案是18或19",
                                          "可能是18",
                                          "至少18",
                                          "x → 18",
                                          "x→18",
                                          "x=17 v x=18",
                                          "17, alternatively 18",
                                          "18 or not",
                                          "May 18",
                                          "18 May",
                                          "The deadline is June 18.",
                                          "18-",
                                          "18 -",
                                          "18!!"};
  const std::vector<std::string> right = {
      "x = 18",          "Therefore x = 18.",   "Total = 18",     "9 * 2 = 18",
      "x = 36/2 = 18",   "f(2) = 18",           "54/3 = 18",      "AB = 18",
      "18 dollars",      "the 18-year plan",    "答案是18",       "答案:18",
      "答案：18",        "答案为 18",           "所以答案是18。", "In 2 days, she sold 10 + 8 = 18 clips",
      "2x = 2 * 9 = 18", "2/3 of 27 = 18 clips"};
  for (const char* reward : {"math", "number"}) expect_paid(reward, "18", wrong, 0);
  expect_paid("number", "18", right, 1);
  expect_paid("number", "18", {"17→18", "17 → 18"}, 0);
  expect_paid("math", "18", {right.begin(), right.begin() + 15}, 1);
  expect_paid("math", "3.33", {"10/3 = 3.33", "\\boxed{10/3 = 3.33}"}, 1);
  expect_paid("math", "0.5", {"1/2 = 50%", "1/2 = 0.5"}, 1);
  expect_paid("number", "1", {"0 = 1", "2 = 1"}, 0);
}

TEST(Chains, AnApproximationByADistantIntegerStatesNoValue) {
  expect_paid("math", "18", {"18 ≈ 17", "18 \\approx 17", "$18 \\approx 17$", "18 \\sim 17", "17 ≈ 18"}, 0);
  expect_paid("math", "3/4", {"$\\frac{3}{4} \\approx 0.75$", "\\boxed{\\frac{3}{4} \\approx 0.8}"}, 1);
  expect_paid("math", "9\\pi", {"$9\\pi \\approx 28$"}, 1);
  expect_paid("math", "1234567", {"$1234567 \\approx 1200000$"}, 1);
}

TEST(Math, APowerOfWhatWasCountedIsNotTheCount) {
  expect_paid("math", "45 apples", {"45 apples^2", "$45\\text{ apples}^2$"}, 0);
  expect_paid("math", "45 apples", {"45 apples", "45", "$45\\text{ apples}$"}, 1);
  expect_paid("math", "45", {"45 cm^2", "$45\\text{ cm}^2$", "45 ft^2 of tile", "45 units^2"}, 1);
}

TEST(Math, ASetOfAnIntervalIsNotTheInterval) {
  expect_paid("math", "[1,2]", {"\\{[1,2]\\}", "$\\{[1,2]\\}$"}, 0);
  expect_paid("math", "\\{[1,2]\\}", {"$\\{[1,2]\\}$"}, 1);
}

TEST(Chains, ADashAnArrowOrAMonthBesideAStatedValueKeepsIt) {
  const std::vector<std::string> right = {"In May 18 clips were sold",
                                          "In May, 18 clips were sold",
                                          "He has 18 in May",
                                          "18 - that is all",
                                          "- 18",
                                          "→ 18",
                                          "\\Rightarrow x = 18",
                                          "\\implies x = 18",
                                          "The answer is 18!",
                                          "The answer is 18!!"};
  for (const char* reward : {"math", "number"}) expect_paid(reward, "18", right, 1);
  expect_paid("number", "18", {"10 + 8 → 18 clips", "36/2 → x = 18", "2x = 36 → x = 18"}, 1);
  expect_paid("math", "\\text{June 20}", {"June 20", "The answer is June 20."}, 1);
}

TEST(Chains, ThoseOfAlignedFormulasAreRead) {
  expect_paid(
      "math", "18",
      {"\\begin{align*}x&=9\\cdot 2\\\\&=18\\end{align*}", "\\begin{align*}\n2x &= 36\\\\\nx &= 18.\n\\end{align*}",
       "\\[\\begin{aligned}x&=9\\cdot 2\\\\&=18\\end{aligned}\\]",
       "$$\\begin{align}x&=9\\cdot 2\\\\&=18.\\end{align}$$",
       "Thus\n\\begin{align*}\na+b&=10+8\\\\\n&=18.\n\\end{align*}\nThat is all.",
       "\\begin{eqnarray*}x&=&9\\cdot 2\\\\&=&18\\end{eqnarray*}", "\\begin{gather*}9\\cdot 2=18\\end{gather*}",
       "\\begin{equation}x=18\\end{equation}", "\\begin{align*}a&=10\\\\b&=8\\\\c&=a+b\\\\&=18\\end{align*}",
       "\\begin{align*}x&=\\frac{36}{2}&&\\text{by 2}\\\\&=18&\\text{as above}\\end{align*}"},
      1);
  expect_paid("math", "18",
              {"\\begin{align*}2x&=18\\end{align*}", "\\begin{align*}x&=17\\\\y&=18\\end{align*}",
               "\\begin{align*}x&=18\\\\y&=17\\end{align*}", "\\begin{align*}x&\\ne18\\end{align*}",
               "\\begin{align*}x&>9\\cdot 2\\\\&=18\\end{align*}", "\\begin{align*}x^2&=18\\end{align*}",
               "\\begin{align*}x&=18\\\\&=19\\end{align*}", "\\begin{align*}x+y&=9\\\\&=18\\end{align*}"},
              0);
  expect_paid("math", "x=17, y=18", {"\\begin{align*}x&=17\\\\y&=18\\end{align*}"}, 1);
}

TEST(ChoiceText, ALetterInsideSomethingElseIsNotAChoice) {
  expect_paid("choice", "A",
              {"A.M.",
               "A.M",
               "A*",
               "A-",
               "A+",
               "A) or",
               "(A) or",
               "A: or B",
               "A. or",
               "A's",
               "Vitamin A",
               "a dog",
               "A'",
               "A_1",
               "A^2",
               "A?",
               "A)?",
               "A...",
               "A#",
               "A/B",
               "A\\B",
               "\\boxed{A\\B}",
               "A: no",
               "A$",
               "$A",
               "A.I.",
               "The answer is A.M.",
               "The answer is A*",
               "The answer is A-",
               "The answer is A+",
               "The answer is A^2",
               "The answer is A's",
               "\\boxed{A*}",
               "\\boxed{A+}",
               "\\boxed{A-}",
               "\\boxed{A.M.}",
               "\\boxed{A'}",
               "not \\boxed{A}",
               "\\boxed{A} is wrong",
               "got an A+"},
              0);
  expect_paid("choice", "A",
              {"A",
               "A.",
               "(A)",
               "A)",
               "A:",
               "[A]",
               "\"A\"",
               "`A`",
               "**A**",
               "*A*",
               "$A$",
               "(a)",
               "a)",
               "A. Paris",
               "A) 42",
               "A: No",
               "(A) No",
               "\\(A\\)",
               "Answer: a",
               "\\boxed{a}",
               "The answer is A.",
               "The answer is **A**.",
               "The answer is 'A'.",
               "A is correct"},
              1);
}

}  // namespace

}  // namespace hone
