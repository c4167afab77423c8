#pragma once
// A tokenizer of the single characters "abc .0123456789" and an end token, for tests.
#include <filesystem>
#include <fstream>

#include "core/text/tokenizer/tokenizer.h"
#include "tests/support/support.h"

namespace hone::test {

inline Tokenizer character_tokenizer(const std::filesystem::path& folder) {
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"char_ords": [97, 98, 99, 32, 46, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57], "model_max_length": 40})";
  return Tokenizer::load(folder);
}

}  // namespace hone::test
