#pragma once
// Generators compute problems instead of reading them. The test split has `heldout` problems, which no seed changes.
// The order of the train split depends on the seed. The splits are disjoint for every seed. Each generator is one file;
// one line registers it:
//   [[maybe_unused]] const bool added =
//       generators().add("arithmetic", [] { return std::unique_ptr<Generator>(new Arithmetic); });
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/registry.h"
#include "core/config/fields.h"
#include "core/io/json.h"

namespace hone {

struct Example {
  std::string prompt, completion, answer;
  Json row() const { return JsonObject{{"prompt", prompt}, {"completion", completion}, {"answer", answer}}; }
};

class Generator {
 public:
  virtual ~Generator() = default;
  virtual void fields(Fields&) {}
  virtual void prepare() {}
  // Number of problems of a split, "train" or "test".
  virtual int64_t size(const std::string& split) const = 0;
  // Problem `index` of a split, index in [0, size). Always the same for the same settings.
  virtual Example example(const std::string& split, int64_t index) const = 0;
};

using GeneratorFactory = std::unique_ptr<Generator> (*)();
Registry<GeneratorFactory>& generators();

// A generator in a recipe: its kind, and its own keys in the same table. An empty kind means no generator.
struct GeneratorSpec {
  std::string kind;
  std::shared_ptr<Generator> generator;  // null until fields() reads a kind
  void fields(Fields& f);
};

}  // namespace hone
