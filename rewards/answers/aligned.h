#pragma once
// Reads the final statement of an aligned environment in LaTeX.
#include <string>
#include <string_view>

namespace hone {

// Returns the last statement with its continuation rows: "\begin{align*} x &= 9 \cdot 2 \\ &= 18 \end{align*}" gives "x
// = 9 \cdot 2 = 18". If several names get a value and the last one does not follow from the others, returns all of
// them: "x = 1, y = 2". A chain of three or more sides keeps only its sides without variables, since its last side is
// the value of the first. Any other text is returned unchanged.
std::string aligned_statement(std::string_view formula);

}  // namespace hone
