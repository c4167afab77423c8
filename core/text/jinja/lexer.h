#pragma once
// Splits a template into tokens and applies white space control: '-' and '+' at the ends of tags; trim_blocks drops the
// newline after a block tag; lstrip_blocks drops the blanks before a block tag that begins its line; one newline at the
// end of the source is dropped.
#include <string>
#include <string_view>
#include <vector>

namespace hone::jinja {

struct Token {
  enum class Type { text, output_begin, output_end, block_begin, block_end, name, string, integer, real, symbol, end };
  Type type;
  std::string text;  // strings: unescaped; numbers: without underscores
  int line;          // from 1
};

// The last token has the type `end`. Errors name the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace hone::jinja
