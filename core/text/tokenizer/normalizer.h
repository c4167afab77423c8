#pragma once
// Changes of the text before it is split: the `normalizer` of a tokenizer.json. A kind ("NFC", "Replace",
// ...) is a factory in normalizers(); normalizer.cpp holds those of the supported families.
#include <memory>
#include <string>
#include <string_view>

#include "core/base/registry.h"
#include "core/io/json.h"

namespace hone {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;
};

// json is the object that has the "type"; where names it in errors.
using NormalizerFactory = std::unique_ptr<Normalizer> (*)(const Json& json, const std::string& where);
Registry<NormalizerFactory>& normalizers();

// nullptr for null.
std::unique_ptr<Normalizer> make_normalizer(const Json& json, const std::string& where);

}  // namespace hone
