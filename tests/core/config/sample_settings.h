#pragma once
// Settings of every type that fields() knows, for tests of readers and writers.
#include <cstdint>
#include <string>
#include <vector>

#include "core/config/fields.h"

namespace hone::test {

struct Inner {
  double rate = 0.5;
  std::vector<double> betas{0.9, 0.95};
  void fields(Fields& f) {
    f("rate", rate, "how fast");
    f("betas", betas, "decay of the moments");
    f.require("rate", rate > 0, "rate must be positive");
  }
  bool operator==(const Inner&) const = default;
};

struct Stage {
  std::string name = "sft";
  Inner inner;
  void fields(Fields& f) {
    f("name", name, "what it is called");
    f("inner", inner, "inner settings");
  }
  bool operator==(const Stage&) const = default;
};

struct Recipe {
  int64_t steps = 10;
  bool fast = false;
  std::string path;
  std::vector<int64_t> sizes;
  std::vector<std::string> words;
  Inner inner;
  std::vector<Stage> stage;
  void fields(Fields& f) {
    f("inner", inner, "a table before values: written after them");
    f("steps", steps, "how many | how long");
    f("fast", fast, "quick");
    f("path", path, "a file");
    f("sizes", sizes, "sizes");
    f("words", words, "words");
    f("stage", stage, "stages in order");
  }
  bool operator==(const Recipe&) const = default;
};

}  // namespace hone::test
