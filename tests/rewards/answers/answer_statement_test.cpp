// The answer that a statement gives. A number inside a wrong answer never scores; one value with words around it does.
#include <string>
#include <vector>

#include "core/io/jsonl.h"
#include "rewards/answers/choice_text.h"
#include "rewards/answers/math_answer.h"
#include "rewards/math/compare.h"
#include "rewards/math/number_answer.h"
#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone {

namespace {

struct StatementCase {
  std::string reference;
  std::vector<std::string> paid, unpaid;
};

void expect_scores(const std::string& spec, const std::vector<StatementCase>& cases) {
  const auto reward = make_reward(spec);
  for (const StatementCase& one : cases) {
    const Task task{.id = "t", .prompt = "", .messages = {}, .answer = one.reference, .columns = {}};
    const auto score = [&](const std::string& text) {
      return reward->score(task, {.ids = {}, .text = text, .finish_reason = "stop"}).score;
    };
    for (const std::string& text : one.paid)
      EXPECT_EQ(score(text), 1) << spec << ": " << one.reference << " | " << text;
    for (const std::string& text : one.unpaid)
      EXPECT_EQ(score(text), 0) << spec << ": " << one.reference << " | " << text;
  }
}

// clang-format off
const std::vector<StatementCase> math_cases = {
    {"1", {"#### 1", "The answer is 1."}, {"#### 1/2", "The answer is (1, 2).", "The answer is 1 1/2.",
     "The answer is 1 1/2 cups.", "She needs 1 1/2 cups of sugar.", "The answer is [1,2).", "1:2",
     "The ratio is 1:2.",
    "The answer is 1.5 million.", "The answer is 1 out of 6.", "The answer is $1$ in $6$.", "The probability is 1/6.",
     "The answer is {1, 2}.", "The answer is 1e5.", "The answer is 1.2.3", "The answer is 1 or two"}},
    {"2", {"The answer is 2", "She finished 2nd.", "x = 2", "So the answer is x = 2."}, {"The answer is 2^10.",
     "2^10", "There are 2^10 ways.", "The answer is 2 < x < 5.", "The solution is 2 < x < 5.",
     "The answer is between 2 and 3.", "x = -2", "So x = -2.",
    "The answer is 2 thirds.", "The answer is $2$ thirds", "The answer is \\(2\\) thirds of it", "The answer is 2x",
     "The answer is 2 or 3", "The answer is $2$ or $3$.", "The answer is $x=2$ or $x=3$.", "The answer is 2√3.",
    "The answer is $2$$x$.", "The answer is 2, 3", "The values are 2 and 3.", "We get $x = 2$ and $y = 3$.",
     "The answer is 2 squared", "The answer is 2 to the power of 5", "The answer is 2 over 3",
     "The answer is 2 over three", "The answer is half of 2.", "The answer is one half of 2",
    "The answer is $2\\sqrt{3}$", "The answer is 2\\sqrt{3}", "Therefore, 2\\sqrt{3}", "The answer is log 2",
     "The answer is the square root of 2.", "The answer is -2.", "The answer is minus 2.", "The answer is negative 2",
     "2 - x", "The answer is |x - 2|."}},
    {"3", {"The answer is 3.", "minus 3 is wrong, so the answer is 3", "The answer is 3 (three).",
     "The answer is **3**", "The answer is $3$ apples", "The answer is 3 apples, not 4.", "The answer is 3 not 4",
     "The answer is 3 (not 4).", "The answer is 3 instead of 4.", "3 rather than 4",
     "The answer is not 4 but 3.", "x_1 = 3", "The answer is x_1 = 3.", "The length is $3$.", "$x$ is $3$."},
    {"The answer is 3/4.", "3/4", "#### 3/4", "Answer: 3/4", "**3/4**", "Therefore, 3/4", "Therefore, 3/4.",
     "The answer is \\frac{3}{4}.", "The answer is 3 or more.", "The answer is about 3 or 4",
     "The answer is either 3 or 4.", "Either 3 or 4", "3 ± 1", "The answer is 3 ± 1.", "The answer is 3 \\pm 1",
    "The answer is 3-4.", "3-4", "The answer is 3 - 4", "3 to 4", "The answer is 3 to 4.", "from 3 to 4",
     "a 3rd of it", "one 3rd", "2/3rd",  "The answer is x > 3.", "x > 3", "x ≥ 3", "The answer is x ≠ 3",
     "The answer is at least 3.", "at most 3", "The answer is more than 3.", "less than 3", "The answer is not 3.",
     "The answer is not 3", "It is not 3.",
    "The answer isn't 3.", "The answer cannot be 3.", "3 is not the answer.", "3 is wrong.", "The answer is 3, 4, 5.",
     "3, 4, 5", "The answer is 3 and 4", "The answer is 3 dozen", "The answer is 3!.", "The answer is $3!$",
     "\\boxed{3!}", "The answer is 3x + 1", "The answer is 3x", "3 x", "The answer is 3n.", "The answer is 3 * 4",
    "The answer is 3 times 4", "The answer is 3 times two", "3 plus one", "The answer is three plus 3",
     "The answer is 3 and a half", "3 1/2", "The answer is 3 + 4i.", "The answer is 3i", "The answer is 3%3",
     "The answer is (3, 4]", "The answer is [3, 4]", "The answer is {3, 4}", "The answer is \\{3, 4\\}", "x=3, y=4",
     "The answer is x = 3, y = 4.",
    "The answer is x = 3 and y = 4.", "x is 3 and y is 4", "x is 3 or x is 4", "The answer is 3.5",
     "The answer is 3,5", "The answer is 3 hundred", "The answer is 3:4", "$3$/4", "The answer is $3$/$4$.",
     "The answer is $3$ over $4$.", "The answer is $3$ or 4", "The answer is $3$ (or 4)", "The answer is 3 (or 4).",
     "The answer is 3 (maybe 4).",
    "nearly 3", "The answer is almost 3.", "up to 3", "The answer is the cube root of 3", "The answer is e^3",
     "The answer is 10^-3", "The answer is 3 below zero", "The answer is 3 degrees below zero", "The answer is 12:03",
     "The answer is 2024-01-03", "The answer is 1/3/2024", "The answer is 3 out of four", "The answer is 3 in 4.",
     "The answer is sin 3", "x^3", "The answer is x^3", "The answer is x3",
    "I think either 3 is right or 4 is right", "The answer is greater than or equal to 3.", "The answer is \\sqrt{3}",
     "The answer is √3", "The answer is 3\\pi", "The answer is 3π.", "The answer is $3$$\\pi$",
     "Therefore $x^2 = 3$.", "2x + 5 = 3", "The answer is 2x+5=3"}},
    {"5", {"The answer is 5!", "The answer is 5! I am sure.", "Therefore x equals 5!", "**5!**", "The answer is 5",
     "The answer is 5.", "f(2) = 5", "The answer is f(2) = 5.", "The answer is about 5.",
     "The answer is approximately 5", "The answer is 5°", "5 degrees", "The answer is 5, because 2+3=5.",
     "The answer is 5 since 2 + 3 = 5",
    "The answer is 5, so x = 5.", "The answer is clear: 5", "The answer is as follows:\n5",
     "The answer is as follows:\n\\[ x = 5 \\]", "The answer is\n\\[\n5\n\\]",
     "We have $x=3$ and $y=4$.\nSo $z = 5$.", "Since 2 + 2 = 4, we get 4 + 1 = 5.", "If x = 3, then y = 5.",
     "Adding $2$ and $3$ gives $5$.", "The sum of 2 and 3 is 5.",
    "She has 2 apples, so she has 3 + 2 = 5 fruits.", "Total: 2 + 3 = 5", "5 (five)", "The value of $x$ is $5$.",
     "$5$", "\\(5\\)", "\\[5\\]", "The final answer is: $\\mathbf{5}$", "A: 5", "Step 3: 5", "She walked 5km.",
     "The answer is 5 km.", "5m²", "The answer is 5 more apples."},
    {"The answer is 2x+5", "2x+5", "#### 2x+5", "The answer is 2x + 5.", "So 2x+5", "The answer is 5 or 6", "5 or 6",
     "5 or six", "#### 5 or 6", "The answer is 5 apples or 6 apples", "$5! = 120$", "The answer is $5!$.", "5! = 120",
     "The answer is 5! = 120", "There are 5! ways.", "The answer is 5:3", "5:3", "The answer is 2/5",
     "The answer is \\frac{2}{5}", "The answer is 2^5",
    "The answer is 5 apples and 3 oranges", "5 apples and 3 oranges", "She has 5 apples, 3 oranges.",
     "The answer is 5 less than 8", "The answer is 3 more than 5", "#### 5, 6", "The answer is (5)(6)", "5% of 20",
     "The answer is 5 million", "The answer is 10:05", "The answer is 5 minus 2", "The answer is 5 dollars 30 cents",
    "The answer is 5 if x is even and 6 otherwise", "Each gets 5 of the 6.", "The answer is x < 5", "x \\le 5",
     "The answer is x + 5", "x - 5", "The answer is (x-5)(x+5).", "The answer is $(x, y) = (2, 5)$",
     "The matrix is \\begin{pmatrix} 5 & 1 \\end{pmatrix}", "The answer is $f(5)$", "f(5)", "a_5",
     "The answer is a_5.", "5^2", "\\frac{5}{2}", "5x = 10", "|5|x"}},
    {"17", {"There are 24 - 7 = 17 students that are not on the team.",
     "The number of people who haven't voted is 30 - 13 = 17", "Half the number of spots is 34/2 = 17 spots.",
     "He pays 64 cents for 5 days, for a total of 12 + 5 = 17 dollars.", "Then he has 4*x = 10 + 7 = 17 dollars."},
    {"17 is not right.", "17 students is not the answer.", "17 doesn't work.", "It is not true that x is 17.",
     "I don't think it is 17.", "It isn't 17.", "x is 16, y = 17", "not sure if it is 17",
     "The answer is 16 but maybe 10 + 7 = 17", "Perhaps 17", "Either 16 or 10 + 7 = 17", "17 wouldn't be correct"}},
    {"8", {"The sum is 18, the last digit of which is 8."}, {"x is 6 or y, which is 7, or z is 8", "x is 7, y is 8"}},
    {"7", {"10 - 3 = 7", "The answer is 10 - 3 = 7.", "So 10 - 3 = 7 dollars are left.", "#### 10 - 3 = 7",
     "10 dollars - 3 dollars = 7 dollars", "The total is $10 - $3 = $7."}, {"7 - 3 = 4", "The answer is 7 + 3 = 10",
     "7 * 2 = 14 apples"}},
    {"10", {"The answer is 10", "10 minutes"}, {"10 - 3 = 7", "The answer is 10 - 3 = 7.",
     "So 10 - 3 = 7 dollars are left.", "10:30", "The answer is 10:30.", "2^10", "The answer is 3 × 10^8",
     "3.0 x 10^8", "10^8", "1/10", "10^-3"}},
    {"12", {"3 * 4 = 12", "3 x 4 = 12", "3x4 = 12", "The answer is 3 * 4 = 12.", "3 × 4 = 12 apples", "12",
     "twelve: 12"}, {"3 * 4 = 13", "12 = 3 + 4 = 7", "3 * 4 = 12 or 13", "12.5", "12 1/2", "1.2e12"}},
    {"18", {"18 dollars", "$18.00", "#### 18", "#### 18 dollars", "**18**", "answer: 18.", "The answer is $18$.",
     "18.", "18!", "The answer is 18 dollars. That is 9 for each of 2 people.", "She makes $18 every day.",
     "She makes $18 every day. That is all.", "17 is wrong.\nIt is 18.", "The answer is 18, not 17.",
     "18 dollars per day", "$18/day", "9 * 2 = $<<9*2=18>>18",
    "She makes 9 * 2 = $<<9*2=18>>18 every day", "She eats 7 of 16 eggs, so she makes $18.", "A: 18",
     "The answer is USD 18.", "18 €", "£18", "The answer is 18 years old.", "The 18-year plan",
     "The answer is 18 years."},
    {"17 (not 18)", "The answer is 17 (not 18).", "17 instead of 18", "The answer is 17 instead of 18.",
     "The answer is 17, not 18.", "17 rather than 18", "not 18", "18 is not it", "18%3", "1,800", "18,000",
     "18 thousand", "18k", "The answer is $18k", "18/2", "18 of 20", "18 for 3", "18 dollars for 3 days",
     "We get $18$ apples out of $20$."}},
    {"72", {"72 clips. That is all.", "72 clips",
     "Natalia sold 48/2 = 24 clips in May. Natalia sold 48+24 = 72 clips altogether in April and May."}, {"72 clips, of which 24 are red",
     "72 and 24"}},
    {"0.1", {"10%", "The answer is 10%.", "1/10", "10 percent"}, {"1%", "10% or 20%"}},
    {"10\\%", {"10%", "The answer is 10%.", "0.1", "It grew by 10 percent."}, {"The answer is 1.", "100"}},
    {"3/4", {"3/4", "The answer is 3/4.", "#### 3/4", "So 3/4 of the pie is left.", "\\frac{3}{4}",
     "Therefore, \\frac{3}{4}.", "¾", "The answer is ¾ of it", "0.75", "$\\frac{3}{4}$ of the pie",
     "The answer is $3$/$4$."}, {"3", "4", "4/3"}},
    {"1/2", {"½", "The answer is ½.", "#### 1/2", "The answer is 1/2 cup."}, {"1", "2", "The answer is 1 of 2", "2.5"}},
    {"3/2", {"1 1/2", "She needs 1 1/2 cups of sugar.", "1½"}, {"The answer is 1/2", "1", "2"}},
    {"1024", {"2^10", "The answer is 2^{10}.", "There are 2^10 ways.", "1,024"}, {"1.024", "2*10", "1 024 0"}},
    {"1000", {"1,000", "The answer is 1,000.", "1e3", "The answer is 1,000 dollars."}, {"1,000,000", "1.000",
     "The answer is 1,000 or 2,000"}},
    {"1500000", {"1.5 million", "The answer is 1.5 million.", "It cost $1.5 million.", "1,500,000",
     "The answer is $1.5$ million."}, {"1.5", "1.5 billion"}},
    {"-3", {"-3", "The answer is -3.", "minus 3", "The answer is minus 3.", "The answer is negative 3", "(-3)", "−3",
     "x = -3", "The temperature is -3 degrees."}, {"3", "x - 3", "5 - 3", "The answer is 5-3."}},
    {"-2", {"x = -2", "So x = -2.", "The answer is $x = -2$."}, {"x = 2", "The answer is 4 - 2"}},
    {"120", {"$5!$", "\\boxed{5!}", "5! = 120", "There are 5! ways."}, {"The answer is 5!", "The answer is 5! I am sure."}},
    {"5:3", {"5:3", "The answer is 5:3.", "The ratio is 5:3.", "#### 5:3", "5 : 3"}, {"5", "3", "5/4", "3:5", "5 or 3"}},
    {"10:30", {"10:30", "The answer is 10:30."}, {"10", "30", "10:31"}},
    {"300000000", {"3.0 × 10^8", "3 * 10^8", "3e8", "The speed is 3 × 10^8 m/s."}, {"3", "10", "8"}},
    {"(1,2)", {"(1, 2)", "The answer is (1, 2).", "The point is (1,2).", "So $(x, y) = (1, 2)$.", "#### (1,2)"}, {"1",
     "2", "(2, 1)", "12"}},
    {"[1,2)", {"[1,2)", "The answer is [1, 2).", "The interval is $[1,2)$."}, {"1", "2", "(1,2)", "[1,2]"}},
    {"x=3, y=4", {"x=3, y=4", "The answer is x = 3, y = 4.", "x = 3 and y = 4", "Therefore $x = 3$ and $y = 4$.",
     "The answer is $x = 3$, $y = 4$."}, {"3", "4", "x = 3", "x=4, y=3"}},
    {"2 < x < 5", {"2 < x < 5", "The answer is 2 < x < 5.", "(2,5)", "The solution is $2 < x < 5$."}, {"2", "5", "2 < x"}},
    {"2x+5", {"2x+5", "The answer is 5 + 2x.", "#### 2x + 5", "So the expression is $2x+5$."}, {"5", "2", "2x", "x+5"}},
    {"3, 4, 5", {"3, 4, 5", "The answer is 3, 4, 5.", "The answer is 5, 4 and 3.", "The sides are 3, 4 and 5.",
     "The answer is $3$, $4$, and $5$."}, {"3", "5", "3, 4"}},
    {"\\{2, 3\\}", {"The roots are 2 and 3.", "\\{2,3\\}", "The answer is 2 or 3.", "$x = 2$ or $x = 3$"}, {"2", "3", "between 2 and 4"}},
    {"at least 5", {"at least 5", "The answer is at least 5."}, {"5", "at most 5"}},
    {"5 dozen", {"5 dozen"}, {"6 dozen"}},
    {"May 5", {"May 5", "The answer is May 5."}, {"May 6", "5"}},
    {"5 \\text{ cm}", {"The answer is 5 cm.", "5 centimeters"}, {"The answer is 6 cm"}},
    {"5 cents", {"The answer is 5 cents.", "It costs 5 cents", "The answer is $0.05."}, {"The answer is $5.",
     "It costs $5.", "$5", "5 dollars"}},
    {"\\$5", {"The answer is $5.", "It costs $5.", "It costs 5 dollars", "$5", "5"}, {"5 cents",
     "The answer is 5 cents.", "It costs 5 cents."}},
    {"5 meters", {"She walks 5 m.", "She walks 500 cm in a day.", "5 meters"}, {"She walks 5 cm.", "The answer is 5 cm", "5 km away"}},
    {"60 km/h", {"The speed is 60 km/h.", "She drives 60 km per hour.", "60 kilometers per hour"}, {"The speed is 60 m/s.",
     "60 miles per hour"}},
    {"Monday", {"The answer is Monday!", "Monday", "Monday!"}, {"Tuesday", "Not Monday"}},
};
// clang-format on

}  // namespace

TEST(AnswerStatement, OneValueWithWordsAroundItIsTheAnswer) { expect_scores("math", math_cases); }

TEST(AnswerStatement, NumbersInsideOfMathAnswersDoNotScore) {
  HONE_SHARED_OR_SKIP(path, "data/eval/math_test.jsonl.gz");
  const std::vector<std::pair<std::string, std::string>> frames = {
      {"So the answer is ", "."}, {"The answer is ", "."}, {"#### ", ""},
      {"Therefore, ", ""},        {"Answer: ", ""},        {"**", "**"}};
  int answers = 0;
  std::vector<int> right(frames.size()), wrong(frames.size());
  read_jsonl(path, [&](const Json& row, int64_t) {
    const std::string& answer = row.at("answer").as_string();
    const size_t digit = answer.find_first_of("0123456789");
    const auto number =
        digit == std::string::npos ? std::nullopt : first_number(std::string_view(answer).substr(digit));
    if (!number || answer.find_first_not_of("-0123456789") == std::string::npos) return;
    ++answers;
    const bool itself = math_equal(number->digits, answer);  // "$18.00" and "12\\text{ cm}" are that number
    for (size_t i = 0; i < frames.size(); ++i) {
      const auto judge = [&](const std::string& reference) {
        for (const std::string& reading : extract_answer(frames[i].first + answer + frames[i].second))
          if (math_equal(reference, reading)) return true;
        return false;
      };
      right[i] += judge(answer);
      wrong[i] += !itself && judge(number->digits);
    }
  });
  EXPECT_EQ(answers, 1816);
  for (size_t i = 0; i < frames.size(); ++i) {
    std::printf("%s: itself %d, first number %d of %d\n", frames[i].first.c_str(), right[i], wrong[i], answers);
    EXPECT_LT(wrong[i], answers / 100) << frames[i].first;
    EXPECT_GE(right[i], answers * 98 / 100) << frames[i].first;
  }
}

TEST(AnswerStatement, NumberReadsOneNumberOrNone) {
  expect_scores(
      "number",
      {
          {"2",
           {"It is 2.", "(2)", "$2$", "\\boxed{2}", "4/2", "#### 2 apples"},
           {"5/2",
            "So 5/2.",
            "#### 5/2",
            "\\frac{5}{2}",
            "$\\frac{5}{2}$",
            "10^2",
            "x^2",
            "x_2",
            "1-2",
            "1 - 2",
            "1:02",
            "2:1",
            "3 1/2",
            "(1, 2)",
            "1,2",
            "1 or 2",
            "1 to 2",
            "v1.2",
            "1.2.2",
            "2x",
            "5 * 2",
            "\\sqrt{2}",
            "2^10",
            "The answer is 2 or 3",
            "The answer is not 2",
            "The answer is 2/3",
            "2 million",
            "2e3",
            "1/1/2"}},
          {"2.5",
           {"5/2", "#### 5/2", "The answer is 5/2.", "2 1/2", "\\frac{5}{2}", "$2.50", "5 / 2", "10/4"},
           {"5", "2"}},
          {"5/2", {"2.5", "5/2"}, {"5", "2", "5/3"}},
          {"1/3", {"1/3", "2/6", "\\frac{1}{3}"}, {"0.3", "1", "3"}},
          {"-1/3", {"-1/3", "-\\frac{1}{3}"}, {"1/3"}},
          {"72",
           {"Natalia sold 48+24 = 72 clips altogether.", "9 * 8 = $<<9*8=72>>72", "#### 72", "72!", "It is **72**.",
            "72 clips (48 in April, 24 in May)", "x = 72", "$x = 72$", "$72 \\text{ clips}$", "72%"},
           {"48 + 72", "72/5"}},
          {"1024", {"2^10 = 1024"}, {"2^10", "1,024.5"}},
          {"-3", {"-3", "x = -3", "minus 3"}, {"5-3", "3"}},
          {"-1800000000", {"A: -1.8 billion", "-1.8e9"}, {"-1.8"}},
          {"100000", {"1e5", "100,000", "0.1 million"}, {"1", "5", "1e4"}},
      });
}

TEST(AnswerStatement, ChoiceIsOneDecidedLetter) {
  expect_scores("choice", {
                              {"A",
                               {"A", "(A)", "A.", "The answer is A.", "The answer is A, not B.", "A is correct.",
                                "Answer: A", "The answer is A because B is too small.", "B is wrong. The answer is A.",
                                "The answer is (A) rather than (B)."},
                               {"(A), (B), (C) or (D)",
                                "A or B",
                                "A and C",
                                "Either A or C",
                                "either A or B is correct",
                                "not A",
                                "Not A.",
                                "I would rule out A",
                                "I would rule out A.",
                                "Both A and B",
                                "Both A and B are correct.",
                                "A and B are correct.",
                                "A dog barks.",
                                "The answer is A or B.",
                                "The answer is A dog.",
                                "The answer is not A.",
                                "The answer isn't A.",
                                "A is not correct.",
                                "A is incorrect.",
                                "A is wrong.",
                                "The answer is either A or B.",
                                "The answer is A and B.",
                                "The answer is A/B.",
                                "Answer: A, B",
                                "\\boxed{A, B}",
                                "\\boxed{A} or \\boxed{B}",
                                "\\boxed{A or B}",
                                "(A) cat (B) dog (C) cow (D) bird",
                                "A. cat B. dog C. cow D. bird",
                                "A. cat\nB. dog\nC. cow\nD. bird\nI cannot tell.",
                                "A) 1 B) 2",
                                "A\nB\nC\nD",
                                "All options except A.",
                                "Neither A nor B",
                                "Neither A nor B is correct.",
                                "The answer is neither A nor B.",
                                "The answer is vitamin A.",
                                "The answer is B, not A.",
                                "The answer could be A. The answer could be B.",
                                "I choose A or B.",
                                "A is right and B is right.",
                                "The answer is A. Wait, the answer is B.",
                                "I am sure that A is out, so the answer is B",
                                "The answer is A or none of these."}},
                              {"B",
                               {"Therefore, B is correct.",
                                "Option B",
                                "Option B.",
                                "The correct choice is (B).",
                                "The correct choice is (B)",
                                "**B**",
                                "B.",
                                "B) 42",
                                "Answer: b",
                                "Answer: B",
                                "(b)",
                                "\\boxed{B}",
                                "\\boxed{\\text{B}}",
                                "$\\boxed{\\textbf{(B)}\\ 42}$",
                                "The answer is B, not A.",
                                "So the answer is option B.",
                                "Thus, B.",
                                "Therefore, (B).",
                                "I choose B.",
                                "I would go with B.",
                                "We compute 42.\n\nB",
                                "We compute 42.\n\nTherefore, option B is the correct answer.",
                                "The best answer is **B**.",
                                "**Answer:** B",
                                "Answer:\nB",
                                "The correct answer to the question is B.",
                                "A is wrong and C is wrong, so B is correct.",
                                "B is the right answer, A is not.",
                                "A is too small. B is correct.",
                                "B: Paris",
                                "(B) Paris",
                                "B. Because 7 is prime",
                                "The answer is B) 42.",
                                "The answer is (B) since (A) is false.",
                                "Only B is correct.",
                                "B must be the answer.",
                                "<think>A</think>\nB",
                                "The answer is $\\text{B}$."},
                               {"Because", "The answer is Boron", "B-vitamins", "The answer is A. B is wrong.",
                                "B is not the answer.", "Option B is incorrect.", "", "I would not choose B."}},
                          });
}

TEST(AnswerStatement, ACorrectedNegatedOrQuestionedAnswerDoesNotScore) {
  const std::vector<std::string> taken_back = {"The answer is 18. Wait, it is 6.",
                                               "The answer is 18? No, it's 17.",
                                               "The answer is 18. No: 17.",
                                               "The answer is 18. Correction: 17.",
                                               "The answer is 18.\n\nActually, that is wrong.",
                                               "It is 18. Wait, that's wrong.",
                                               "Suppose the answer is 18. Contradiction, so it is 17.",
                                               "The wrong answer is 18",
                                               "I don't think the answer is 18.",
                                               "It is false that x = 18",
                                               "The answer might be 18.",
                                               "It could be 18.",
                                               "The answer is anything but 18",
                                               "The answer does not equal 18",
                                               "18 can be ruled out.",
                                               "18 is too large",
                                               "18 is nearly right",
                                               "x = 18 is extraneous",
                                               "We reject 18",
                                               "Step 18",
                                               "Is it 18?",
                                               "The answer is 18?"};
  const std::vector<std::string> kept = {"The answer is 5. Wait, it is 18.",
                                         "The answer is 5. Wait, actually the answer is 18.",
                                         "Is it 17? No, it is 18.",
                                         "The answer is 18. Actually, let me check: 9 * 2 = 18.",
                                         "3 is not prime, so the answer is 18.",
                                         "I don't think it is hard: the answer is 18.",
                                         "If she sells 9 at $2, the answer is 18."};
  for (const char* reward : {"math", "number"}) expect_scores(reward, {{"18", kept, taken_back}});
  expect_scores("math",
                {{"18",
                  {"答案是18", "答案：18"},
                  {"y = 17 when x = 18", "答案不是18", "Let x = 18.", "If the answer is 18, then we are lost."}}});
  expect_scores(
      "number",
      {{"18",
        {"\\[ \\boxed{18} \\]", "The answer is $\\boxed{18}$ dollars", "$9\\times 2=\\boxed{18}$.", "$\\boxed{18}.$",
         "\\boxed{x=18}", "\\boxed{18 clips}", "\\boxed{18 cm}", "or $x=\\boxed{18}$, which 3 checks show.",
         "The answer is $\\mathbf{18}$.", "The answer isn't 17, it's 18."},
        {"The answer isn't 18, it's 17.", "half of 18", "twice 18", "18 squared", "18 dozen", "more than 18",
         "18 or more", "18 and a half", "20 minus 18", "18 is incorrect", "Neither 17 nor 18",
         "x = 18 is not a solution", "perhaps 18", "\\boxed{17} or \\boxed{18}", "\\boxed{17}, not 18",
         "\\boxed{18, 17}", "\\boxed{18 of 20}", "\\boxed{9 \\cdot 18}"}}});
  expect_scores(
      "choice",
      {{"A",
        {"The answer is B. Wait, it is A.", "I'd say A.", "答案是A", "答案：A", "It's not B, so the answer is A."},
        {"The answer is A. Wait, it is B.", "The answer is A? No, B.", "A... no, B", "Is it A?",
         "If A is correct then B", "A is correct and so is B", "The wrong answer is A", "The incorrect option is A",
         "Suppose A is correct. Then", "If the answer is A, then", "A is partially correct", "A is the worst answer",
         "A is correct only if x > 0", "It is unclear whether A is correct", "Nobody thinks A is correct."}}});
}

}  // namespace hone
