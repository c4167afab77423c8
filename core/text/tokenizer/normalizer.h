#pragma once
// The `normalizer` of a tokenizer.json: changes the text before it is split. Each type ("NFC", "Replace", ...) is a
// factory in normalizers(); normalizer.cpp has those of the supported families.
#include <memory>
#include <string>
#include <string_view>

#include "core/base/registry.h"
#include "core/io/json.h"

namespace hone {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // begins: false if the text continues an earlier one, so that nothing is added or removed in front of it.
  virtual std::string apply(std::string text, bool begins) const = 0;
};

// json: the object with the "type" member. where: its name in errors.
using NormalizerFactory = std::unique_ptr<Normalizer> (*)(const Json& json, const std::string& where);
Registry<NormalizerFactory>& normalizers();

// Returns nullptr for JSON null.
std::unique_ptr<Normalizer> make_normalizer(const Json& json, const std::string& where);

}  // namespace hone
