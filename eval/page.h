#pragma once
// The report of an evaluation as one HTML file that needs nothing else: figures, plots, and samples to browse, by task,
// by right and wrong, by words.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/result.h"

namespace hone {

// Text as HTML shows it, whatever bytes it has: markup characters as entities, invalid UTF-8 and control characters as
// U+FFFD.
std::string html_text(std::string_view text);

// Of each task at most `shown` samples that are right and as many that are not, in order; the page says how many there
// are. charts: SVG documents.
std::string html_page(const std::string& title, const std::vector<EvalResult>& results,
                      const std::vector<std::string>& charts, size_t shown = 300);

}  // namespace hone
