// The first line is an override, the rest a recipe. A recipe that reads is written and must read back the same.
#include <cstdlib>

#include "core/config/config.h"

namespace {

struct Inner {
  double rate = 1;
  std::vector<double> betas;
  void fields(hone::Fields& f) {
    f("rate", rate, "");
    f("betas", betas, "");
    f.require("rate", rate != 0, "rate is zero");
  }
};

struct Recipe {
  bool fast = false;
  int64_t steps = 0;
  std::string path;
  std::vector<int64_t> sizes;
  std::vector<std::string> words;
  Inner inner;
  std::vector<Inner> stage;
  void fields(hone::Fields& f) {
    f("fast", fast, "");
    f("steps", steps, "");
    f("path", path, "");
    f("sizes", sizes, "");
    f("words", words, "");
    f("inner", inner, "");
    f("stage", stage, "");
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t newline = text.find('\n');
  const std::vector<std::string> overrides(newline > 0 && newline != std::string_view::npos ? 1 : 0,
                                           std::string(text.substr(0, newline)));
  std::string written;
  try {
    Recipe recipe =
        hone::Config::from_text(newline == std::string_view::npos ? text : text.substr(newline + 1), "fuzz", overrides)
            .as<Recipe>();
    written = hone::to_toml([&](hone::Fields& f) { recipe.fields(f); });
  } catch (const hone::Error&) {
    return 0;
  }
  if (written.find("${") != std::string::npos) return 0;  // would be expanded again
  Recipe again = hone::Config::from_text(written, "written").as<Recipe>();
  if (hone::to_toml([&](hone::Fields& f) { again.fields(f); }) != written) std::abort();
  return 0;
}
