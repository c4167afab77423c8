#pragma once
// The look of all HTML pages: the server's page, the reports of evaluations and runs, and the live view.
#include <string>
#include <string_view>

namespace hone {

// The text of core/io/page_style.css, which is compiled into the program.
std::string_view page_style();

// Replaces the one occurrence of `marker` in a page. An Error if it is not there exactly once.
std::string with_part(std::string page, std::string_view marker, std::string_view text);

}  // namespace hone
