#pragma once
// The report of an evaluation as one self-contained HTML file: metrics, plots, and samples to filter by task, by
// verdict and by words.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/result.h"

namespace hone {

// Escapes text for HTML: markup characters become entities, invalid UTF-8 and control characters U+FFFD.
std::string html_text(std::string_view text);

// Shows of each task at most `shown` right samples and as many others, in order; the page says how many are left out.
// charts: SVG documents. about: names and values above the table (model, date, command). Figures of subtasks are
// folded.
std::string html_page(const std::string& title, const std::vector<EvalResult>& results,
                      const std::vector<std::string>& charts,
                      const std::vector<std::pair<std::string, std::string>>& about = {}, size_t shown = 300);

}  // namespace hone
