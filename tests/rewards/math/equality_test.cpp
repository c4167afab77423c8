// Unequal answers never count as equal: crafted congruences, domains of variables, complex numbers, bases, units. Equal
// answers stay equal.
#include <gtest/gtest.h>

#include <array>
#include <boost/multiprecision/cpp_int.hpp>
#include <initializer_list>
#include <string>

#include "core/base/rng.h"
#include "rewards/math/compare.h"
#include "tests/support/cpu_time.h"

namespace hone {
namespace {

using boost::multiprecision::cpp_int;

struct Pair {
  const char *reference, *answer;
};

void expect_all(bool equal, std::initializer_list<Pair> pairs) {
  for (const Pair& pair : pairs) {
    EXPECT_EQ(math_equal(pair.reference, pair.answer), equal) << pair.reference << " | " << pair.answer;
    EXPECT_EQ(math_equal(pair.answer, pair.reference), equal) << pair.answer << " | " << pair.reference;
  }
}

TEST(MathEquality, ACongruentNumberIsNotEqual) {
  // 2^61 - 1 is 2305843009213693951: congruent to 1/2, 5, 0 and -1.
  expect_all(false, {{"\\frac{1}{2}", "1152921504606846976"},
                     {"5", "2305843009213693956"},
                     {"5", "2^{61}+4"},
                     {"5", "5 + 2305843009213693951"},
                     {"5", "5 \\cdot 2^{61}"},
                     {"0", "2^{61}-1"},
                     {"-1", "2^{61}-2"},
                     {"x", "x + (2^{61}-1)y"},
                     {"x+1", "2^{61}x + 1"},
                     {"x^2", "x^{2305843009213693952}"},
                     {"\\frac{1}{x}", "\\frac{2^{61}}{x}"},
                     {"x = 5", "x = 2^{61}+4"},
                     {"(1, 5)", "(1, 2^{61}+4)"},
                     {"\\{5\\}", "\\{2^{61}+4\\}"},
                     {"2\\pi", "2\\pi + 2^{61} - 1"},
                     {"1", "2^{2305843009213693950}"},
                     {"2", "2 \\cdot 3^{2305843009213693950}"}});
}

TEST(MathEquality, NumbersCongruentModuloManyKnownPrimesAreNotEqual) {
  // The Chinese remainder theorem gives a number with the right remainders modulo any known primes.
  const cpp_int primes[] = {(cpp_int(1) << 61) - 1,  (cpp_int(1) << 31) - 1, cpp_int(1000000007),
                            cpp_int(998244353),      (cpp_int(1) << 89) - 1, (cpp_int(1) << 127) - 1,
                            (cpp_int(1) << 64) - 59, (cpp_int(1) << 63) - 25};
  cpp_int product = 1;
  for (const cpp_int& prime : primes) {
    product *= prime;
    for (const int value : {0, 1, 5, 17}) {
      const std::string small = std::to_string(value), large = cpp_int(product + value).str();
      EXPECT_FALSE(math_equal(small, large)) << value;
      EXPECT_FALSE(math_equal(small, small + " + " + product.str())) << value;
      EXPECT_FALSE(math_equal(small + "x", small + "x + " + product.str() + "y")) << value;
      EXPECT_FALSE(math_equal("\\frac{" + small + "}{3}", "\\frac{" + large + "}{3}")) << value;
      EXPECT_FALSE(math_equal("10^{10^{10}} + " + small, "10^{10^{10}} + " + large)) << value;
    }
  }
}

TEST(MathEquality, UnequalNumbersAreNeverEqual) {
  Rng rng(17);
  for (int k = 0; k < 3000; ++k) {
    const auto a = static_cast<int64_t>(rng.next() % 2000) - 1000, b = static_cast<int64_t>(rng.next() % 999) + 1;
    const auto c = static_cast<int64_t>(rng.next() % 2000) - 1000, d = static_cast<int64_t>(rng.next() % 999) + 1;
    const std::string x = "\\frac{" + std::to_string(a) + "}{" + std::to_string(b) + "}",
                      y = "\\frac{" + std::to_string(c) + "}{" + std::to_string(d) + "}";
    EXPECT_EQ(math_equal(x, y), a * d == b * c) << x << " " << y;
    EXPECT_TRUE(math_equal(x, "\\frac{" + std::to_string(a * d) + "}{" + std::to_string(b * d) + "}")) << x;
    EXPECT_EQ(math_equal(x + "\\sqrt{2}", y + "\\sqrt{2}"), a * d == b * c) << x << " " << y;
  }
  for (size_t digits = 2; digits < 900; digits += 37) {
    std::string number = "1";
    for (size_t i = 1; i < digits; ++i) number += static_cast<char>('0' + rng.next() % 10);
    std::string other = number;
    other.back() = other.back() == '9' ? '0' : static_cast<char>(other.back() + 1);
    for (const char* form : {"", "x+", "|-1|", "\\frac{1}{7}+", "(-1)"})
      EXPECT_FALSE(math_equal(form + number, form + other)) << form << number;
    EXPECT_FALSE(math_equal("|" + number + "|", "|" + other + "|")) << number;
    EXPECT_FALSE(math_equal("x = " + number, "x = " + other)) << number;
    EXPECT_FALSE(math_equal("y = " + number + "x", "y = " + other + "x")) << number;
    EXPECT_FALSE(math_equal(number + ".5", other + ".5")) << number;
    EXPECT_FALSE(math_equal("\\sqrt{" + number + number + "}", number)) << number;
  }
}

TEST(MathEquality, DifferentExpressionsAreNeverEqual) {
  Rng rng(5);
  const auto polynomial = [&rng](std::array<int64_t, 4>& c) {
    std::string out;
    for (size_t i = 0; i < c.size(); ++i) {
      c[i] = static_cast<int64_t>(rng.next() % 3) - 1;
      out += "+(" + std::to_string(c[i]) + ")" + std::array<const char*, 4>{"", "x", "xy", "x^2"}[i];
    }
    return out.substr(1);
  };
  for (int k = 0; k < 1000; ++k) {
    std::array<int64_t, 4> p{}, q{};
    const std::string a = polynomial(p), b = polynomial(q);
    EXPECT_EQ(math_equal(a, b), p == q) << a << " " << b;
    EXPECT_EQ(math_equal("\\sqrt{z}(" + a + ")", "(" + b + ")\\sqrt{z}"), p == q) << a << " " << b;
  }
}

TEST(MathEquality, TinyDifferencesCount) {
  expect_all(false, {{"0", "10^{-9}"},
                     {"0", "0.000000001"},
                     {"0", "\\sqrt{2} \\cdot 10^{-14}"},
                     {"10^{15}\\pi", "10^{15}\\pi + 1"},
                     {"10^{5}", "\\sqrt{10^{10}+1}"},
                     {"\\frac{1}{3}", "\\frac{333333}{1000000}"},
                     {"\\frac{10^{20}+1}{10^{20}}", "1"},
                     {"10^{20} + 0.5", "10^{20} + 1.5"},
                     {"y = 10^{20}x + 1", "y = 10^{20}x + 2"},
                     {"5\\pi", "\\pi \\cdot 10^{30} - \\pi \\cdot 10^{30}"},
                     {"x", "x + 10^{-12}"},
                     {"\\sqrt{x}", "\\sqrt{x} + 10^{-12}"},
                     {"\\frac{0}{0}", "1"},
                     {"1", "\\frac{x-x}{x-x}"},
                     {"\\frac{1}{0}", "\\frac{2}{0}"}});
  expect_all(true, {{"\\sqrt{2}\\sqrt{2} - 2", "0"},
                    {"\\frac{1}{3}", "0.333333"},
                    {"\\lfloor \\sqrt{2}\\sqrt{2} \\rfloor", "2"},
                    {"(1+\\sqrt{5})^{10}", "62976 + 28160\\sqrt{5}"},
                    {"10^{10^{10}}", "10 \\cdot 10^{10^{10}-1}"},
                    {"2^{100000}", "4^{50000}"},
                    {"\\frac{1000!}{999!}", "1000"},
                    {"2^{6/2}", "8"},
                    {"\\sqrt{x^2+1}-x", "\\frac{1}{\\sqrt{x^2+1}+x}"}});
}

TEST(MathEquality, VariablesMayBeNegative) {
  expect_all(false, {{"|x|", "x"},
                     {"\\sqrt{x^2}", "x"},
                     {"\\sqrt{x^2 y}", "x\\sqrt{y}"},
                     {"\\sqrt{(x-50)^2}", "50-x"},
                     {"|x-50|", "50-x"},
                     {"|x-5|", "|x+5|"},
                     {"|x+y|", "x+y"},
                     {"|x|y", "x|y|"},
                     {"|xy|", "xy"},
                     {"\\frac{|x|}{x}", "1"},
                     {"\\sqrt[4]{x^4}", "x"},
                     {"(x^2)^{1/2}", "x"},
                     {"\\ln|x|", "\\ln x"},
                     {"\\ln(x^2)", "2\\ln x"},
                     {"\\sqrt{x}^2", "|x|"},
                     {"x^{2/3}", "-x^{2/3}"},
                     {"x > |y|", "x > y"},
                     {"y = |x|", "y = x"},
                     {"y = \\ln|x|", "y = \\ln x"},
                     {"y = \\sqrt{x^2}", "y = x"},
                     {"ix", "i|x|"},
                     {"e^{ix}", "e^{-ix}"}});
  expect_all(true, {{"|x|", "\\sqrt{x^2}"},
                    {"|x|", "|-x|"},
                    {"|x|^2", "x^2"},
                    {"\\sqrt{x}", "x^{1/2}"},
                    {"\\sqrt[3]{x}", "x^{1/3}"},
                    {"\\sqrt[3]{x^3}", "x"},
                    {"\\sqrt{x^4}", "x^2"},
                    {"\\sqrt{xy}", "\\sqrt{x}\\sqrt{y}"},
                    {"\\ln(xy)", "\\ln x + \\ln y"},
                    {"\\ln\\frac{x}{y}", "\\ln x - \\ln y"},
                    {"\\sqrt{50x}\\cdot\\sqrt{18x}\\cdot\\sqrt{8x}", "60x\\sqrt{2x}"},
                    {"(-1)^{n+1}", "-(-1)^n"},
                    {"\\frac{n!}{(n-1)!}", "n"},
                    {"2^{n+1}", "2 \\cdot 2^n"},
                    {"\\log_2 x", "\\frac{\\ln x}{\\ln 2}"},
                    {"\\sqrt{x-10}", "(x-10)^{1/2}"},
                    {"2\\sin x\\cos x", "\\sin 2x"}});
}

TEST(MathEquality, ComplexNumbers) {
  expect_all(true, {{"i", "\\sqrt{-1}"},
                    {"2i", "\\sqrt{-4}"},
                    {"i\\sqrt{3}", "\\sqrt{-3}"},
                    {"-1", "i^2"},
                    {"i^{2019}", "-i"},
                    {"1+i", "i+1"},
                    {"(1+i)^2", "2i"},
                    {"\\frac{1}{1+i}", "\\frac{1-i}{2}"},
                    {"|3+4i|", "5"},
                    {"e^{i\\pi}", "-1"},
                    {"\\frac{7}{5} + \\frac{1}{5} i", "1.4+0.2i"},
                    {"1 \\pm i", "1+\\sqrt{-1}, 1-\\sqrt{-1}"},
                    {"-2", "\\sqrt[3]{-8}"},
                    {"-2", "(-8)^{1/3}"}});
  expect_all(false, {{"i", "-\\sqrt{-1}"},
                     {"i", "-i"},
                     {"i", "1"},
                     {"3+4i", "3-4i"},
                     {"|3+4i|", "7"},
                     {"2i", "\\sqrt{4}"},
                     {"(10^{20}+1)i", "10^{20}i"},
                     {"1+i\\sqrt{3}", "1-i\\sqrt{3}"}});
}

TEST(MathEquality, NumbersOfOtherBases) {
  expect_all(true, {{"1011_2", "11"},
                    {"1011_2", "1011_{2}"},
                    {"1011_{2}", "1011_{\\text{two}}"},
                    {"24_{10}", "24"},
                    {"2E_{16}", "46"},
                    {"152A_{11}", "152A_{11}"},
                    {"-11_2", "-3"},
                    {"0.1_2", "\\frac12"}});
  expect_all(false, {{"1011_2", "1011"},
                     {"1011_2", "1011_3"},
                     {"1_7", "1_8"},
                     {"12_2", "4"},
                     {"1011_2", "13"},
                     {"x_2", "2"},
                     {"4", "1_2 4"},
                     {"25_{6}", "25_{6x}"},
                     {"152A_{11}", "1529_{11}"}});
}

TEST(MathEquality, UnitsOfOneKindConvert) {
  expect_all(true, {{"5 \\text{ m}", "500 \\text{ cm}"},
                    {"5\\text{ m}", "500 cm"},
                    {"5 \\text{ meters}", "0.005\\text{ km}"},
                    {"5\\text{ m}", "5m"},
                    {"1 \\text{ hour}", "60 \\text{ minutes}"},
                    {"1 hour 30 minutes", "90 minutes"},
                    {"1.5 hours", "1 hour 30 minutes"},
                    {"1 hour and 30 minutes", "1 hour 30 minutes"},
                    {"1 hour 1 minute 1 second", "3661 seconds"},
                    {"\\text{5 feet}", "\\text{5 feet}"},
                    {"5 feet 6 inches", "66 inches"},
                    {"5 cm * 3 cm", "15\\text{ cm}^2"},
                    {"2 \\text{ m and } 3\\text{ m}", "3\\text{ m}, 2\\text{ m}"},
                    {"1\\text{ ft}", "12\\text{ in}"},
                    {"\\$5", "500 \\text{ cents}"},
                    {"\\$1.50", "1.5 dollars"},
                    {"36 \\text{ km/h}", "10\\text{ m/s}"},
                    {"60 \\text{ mph}", "60 miles per hour"},
                    {"70 mph", "70 miles/hour"},
                    {"1 \\text{ m}^2", "10000\\text{ cm}^2"},
                    {"3 \\text{ square inches}", "3\\text{ in}^2"},
                    {"3 \\text{ square feet}", "432 \\text{ in}^{2}"},
                    {"2 \\text{ liters}", "2000 \\text{ mL}"},
                    {"180^\\circ", "\\pi \\text{ radians}"},
                    {"30^\\circ", "30 \\text{ degrees}"},
                    {"2 years", "24 months"},
                    {"x = 5\\text{ m}", "500\\text{ cm}"},
                    {"(1\\text{ m}, 2\\text{ m})", "(100\\text{ cm}, 200\\text{ cm})"},
                    {"-3\\text{ km}", "-3000\\text{ m}"},
                    {"3 million dollars", "3000000 dollars"}});
  // One side has no unit, or words that are not a unit: only the number counts.
  expect_all(true, {{"5\\text{ cm}", "5"},
                    {"12", "12 apples"},
                    {"12\\text{ apples}", "12 oranges"},
                    {"5\\text{ cm}", "5\\text{ units}"},
                    {"30^\\circ", "30"},
                    {"\\$18", "18"},
                    {"6 \\text{ feet tall}", "6 feet"}});
}

TEST(MathEquality, UnitsThatDifferMakeOtherQuantities) {
  expect_all(false, {{"5\\text{ cm}", "5\\text{ m}"},
                     {"5 cm", "5\\text{ m}"},
                     {"5\\text{ cm}", "5m"},
                     {"5\\text{ cm}", "5\\text{ cm}^2"},
                     {"5 \\text{ hours}", "5\\text{ minutes}"},
                     {"5 \\text{ hours}", "5\\text{ km}"},
                     {"\\$5", "5\\text{ cents}"},
                     {"5 dollars", "5 cents"},
                     {"10 \\text{ km/h}", "10 \\text{ m/s}"},
                     {"60\\text{ mph}", "60\\text{ km/h}"},
                     {"30^\\circ", "30\\text{ radians}"},
                     {"3\\text{ square inches}", "3\\text{ square feet}"},
                     {"3\\text{ in}^2", "3\\text{ in}^3"},
                     {"1 hour 30 minutes", "31"},
                     {"1 hour 30 minutes", "1 hour 40 minutes"},
                     {"1 hour 30 minutes", "31 minutes"},
                     {"1 hour 30 minutes", "1 hour, 30 hours"},
                     {"1 hour 1 minute 20 seconds", "61 minutes"},
                     {"2\\text{ m and }3\\text{ m}", "5\\text{ m}"},
                     {"x = 5\\text{ m}", "x = 5\\text{ cm}"},
                     {"(1\\text{ m}, 2\\text{ m})", "(1\\text{ cm}, 2\\text{ cm})"},
                     {"6\\text{ feet tall}", "6\\text{ inches tall}"},
                     {"2\\text{ pounds}", "2\\text{ ounces}"},
                     {"45", "4^\\circ 5"},
                     {"26", "2\\$6"},
                     {"26", "2$6"},
                     {"5\\text{ m}", "500\\text{ m}"}});
}

TEST(MathEquality, MoneyOfDifferentCurrenciesDiffers) {
  expect_all(true, {{"€5", "5 euros"},
                    {"€5", "5"},
                    {"5", "5 €"},
                    {"£5", "5 pounds"},
                    {"\\pounds 5", "£5"},
                    {"£5", "500 pence"},
                    {"5 cents", "5¢"},
                    {"\\$5", "500 cents"},
                    {"¥100", "100 yen"},
                    {"5\\$", "\\$5"}});
  expect_all(false, {{"\\$5", "€5"},
                     {"\\$5", "5 euros"},
                     {"5 dollars", "€5"},
                     {"\\$5", "£5"},
                     {"\\$5", "5 pounds"},
                     {"\\$5", "5 yen"},
                     {"€5", "£5"},
                     {"€5", "5 rupees"},
                     {"5 million dollars", "5 million euros"},
                     {"(\\$5, 1)", "(€5, 1)"}});
}

TEST(MathEquality, PercentDegreesAndRadiansDiffer) {
  expect_all(true,
             {{"90^\\circ", "90"}, {"90\\%", "90"}, {"90^\\circ", "90 degrees"}, {"5^\\circ C", "5 degrees Celsius"}});
  expect_all(false, {{"90^\\circ", "90\\%"},
                     {"90\\%", "90^\\circ"},
                     {"90 degrees", "90 percent"},
                     {"90\\%", "90\\text{ radians}"},
                     {"90^\\circ", "90\\text{ radians}"},
                     {"90\\%", "\\$90"},
                     {"90\\%", "90\\text{ cm}"},
                     {"90^\\circ", "\\$90"},
                     {"(90^\\circ, 1)", "(90\\%, 1)"},
                     {"5^\\circ\\text{C}", "5^\\circ\\text{F}"},
                     {"5 Celsius", "5 Fahrenheit"}});
}

TEST(MathEquality, PowersOfUnitsWithoutASizeDiffer) {
  expect_all(true, {{"45 \\text{ units}^2", "45 square units"},
                    {"45\\text{ sq units}", "45\\text{ units}^2"},
                    {"45\\text{ units}^2", "45"},
                    {"45\\text{ units}^2", "45\\text{ cm}^2"},
                    {"45 units", "45 cm"}});
  expect_all(false, {{"45 \\text{ units}^2", "45 \\text{ units}^3"},
                     {"45 units^2", "45 units^3"},
                     {"45 units^2", "45 units"},
                     {"45 square units", "45 cubic units"},
                     {"45 square units", "45 cm"},
                     {"45 square units", "45 cm^3"},
                     {"45 units^2", "45 hours"}});
}

TEST(MathEquality, ListsCountAndSetsNest) {
  expect_all(true, {{"5,5", "5,5"},
                    {"1,1,2", "2,1,1"},
                    {"\\{1,2\\}", "\\{1,2,2\\}"},
                    {"\\{1,\\{2\\}\\}", "\\{\\{2\\},1\\}"},
                    {"\\{\\{1,2\\},\\{3,4\\}\\}", "\\{\\{4,3\\},\\{2,1\\}\\}"},
                    {"5", "5 or 5"}});
  expect_all(false, {{"5", "5,5"},
                     {"5,5", "5"},
                     {"1,2", "1,2,2"},
                     {"1,1,2", "1,2,2"},
                     {"\\{1,\\{2\\}\\}", "\\{1,2\\}"},
                     {"\\{1,2\\}", "\\{1,\\{2\\}\\}"},
                     {"\\{\\{1\\},\\{2\\}\\}", "\\{1,2\\}"},
                     {"\\{\\{1,2\\}\\}", "\\{1,2\\}"},
                     {"\\{\\{1,2\\},3\\}", "\\{1,\\{2,3\\}\\}"},
                     {"\\{1,2\\},\\{3,4\\}", "\\{1,3\\},\\{2,4\\}"},
                     {"\\{1,2\\},\\{3,4\\}", "1,2,3,4"},
                     {"\\{\\emptyset\\}", "\\emptyset"},
                     {"((1,2),3)", "(1,(2,3))"}});
}

TEST(MathEquality, HugeNumbersTakeBoundedTime) {
  const CpuTime time;
  std::string powers, factorials, fractions;
  for (int i = 0; i < 400; ++i) {
    powers += "7^{4999}*";
    factorials += "999!+";
    fractions += "\\frac1{9" + std::to_string(i) + "}+";
  }
  const std::string nines(3000, '9');
  for (const std::string& text : {powers, factorials, fractions, nines + "*" + nines.substr(0, 1000) + "+"}) {
    EXPECT_FALSE(math_equal(text + "1", text + "2"));
    EXPECT_FALSE(math_equal("x=" + text + "y", "x=" + text + "z"));
  }
  EXPECT_LT(time.seconds(), 4.0);
}

}  // namespace
}  // namespace hone
