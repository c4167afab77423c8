#pragma once
// Generators make problems instead of reading them. The test split has `heldout` problems, which no seed changes; the
// train split has its problems in an order that depends on the seed. The splits are disjoint for every seed. One file
// each; it joins with one line:
//   [[maybe_unused]] const bool added = generators().add("arithmetic", [] { return std::unique_ptr<Generator>(new
//   Arithmetic); });
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
  // Problems of a split, "train" or "test".
  virtual int64_t size(const std::string& split) const = 0;
  // The index-th one, index in [0, size): always the same.
  virtual Example example(const std::string& split, int64_t index) const = 0;
};

using GeneratorFactory = std::unique_ptr<Generator> (*)();
Registry<GeneratorFactory>& generators();

// A generator in a recipe: its kind, and its own keys in the same table. An empty kind: none.
struct GeneratorSpec {
  std::string kind;
  std::shared_ptr<Generator> generator;  // made while fields() reads
  void fields(Fields& f);
};

}  // namespace hone
