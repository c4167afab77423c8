#pragma once
// The statement that an environment of aligned formulas ends in.
#include <string>
#include <string_view>

namespace hone {

// Returns what "\begin{align*} x &= 9 \cdot 2 \\ &= 18 \end{align*}" states, "x = 9 \cdot 2 = 18": the last statement
// with the rows that go on with it. Where several names get a value and the last does not follow from them, all of
// them: "x = 1, y = 2". A chain of three or more sides keeps those without variables: its last side is what the first
// comes to. Any other text is returned as it is.
std::string aligned_statement(std::string_view formula);

}  // namespace hone
