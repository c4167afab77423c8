// The input is a reference and an answer, separated by the first zero byte. Comparison always ends, gives the same
// result twice, and finds an answer equal to itself.
#include <cstdlib>
#include <string>

#include "rewards/answers/math_answer.h"
#include "rewards/math/compare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t half = text.find('\0');
  const std::string reference = text.substr(0, half),
                    answer = half == std::string::npos ? reference : text.substr(half + 1);
  for (const bool strict : {false, true}) {
    const hone::MathPolicy policy{.strict = strict, .any_names = !strict, .inequality_for_interval = !strict};
    const bool equal = hone::math_equal(reference, answer, policy);
    if (equal != hone::math_equal(reference, answer, policy)) std::abort();
    if (equal && !hone::math_equal(reference, reference, policy)) std::abort();
  }
  const std::string expected = hone::extract_reference(reference);
  for (const std::string& reading : hone::extract_answer(answer)) hone::math_equal(expected, reading);
  return 0;
}
