#pragma once
// A template's text as tokens, white space control done: '-' and '+' at a tag's ends, the newline after a block tag
// dropped (trim_blocks), the blanks before a block tag that begins its line dropped (lstrip_blocks), one newline at the
// end of the source dropped.
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

// The last token is `end`. Errors say the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace hone::jinja
