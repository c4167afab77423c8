#pragma once
// Decoders of a page's values, and what the values are in JSON.
#include <memory>
#include <string_view>

#include "core/io/json.h"
#include "core/io/parquet/schema.h"

namespace hone::parquet {

// A value as it is stored.
struct StoredValue {
  int64_t integer = 0;     // boolean, int32, int64
  double real = 0;         // float32, float64
  std::string_view bytes;  // the others; until the next value is read
};

class ValueDecoder {
 public:
  virtual ~ValueDecoder() = default;
  virtual void next(StoredValue& value) = 0;  // throws an Error where the page ends
};

// A decoder of all encodings but dictionaries. The bytes must outlive it.
std::unique_ptr<ValueDecoder> make_value_decoder(Encoding encoding, const Leaf& leaf, std::string_view bytes);

Json to_json(const Leaf& leaf, const StoredValue& value);

}  // namespace hone::parquet
