#include "tests/support/npy.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "core/device/dtype.h"

namespace hone::test {
namespace {

template <class T, class Widen>
std::vector<double> widened(const std::string& bytes, size_t at, size_t count, Widen widen) {
  if (bytes.size() < at || (bytes.size() - at) / sizeof(T) < count) throw std::runtime_error("npy: too short");
  std::vector<double> out;
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes.data() + at + i * sizeof(T), sizeof(T));
    out.push_back(static_cast<double>(widen(value)));
  }
  return out;
}

// Returns the text between `key` and the next `end` in the header, "{'descr': '<f4', 'fortran_order': False, 'shape':
// (8, 128), }".
std::string field(const std::string& header, const std::string& key, char end) {
  const size_t at = header.find(key);
  if (at == std::string::npos) throw std::runtime_error("npy: no " + key);
  const size_t first = at + key.size();
  return header.substr(first, header.find(end, first) - first);
}

}  // namespace

NpyArray read_npy(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (bytes.size() < 10 || bytes.compare(1, 5, "NUMPY") != 0 || bytes[6] != 1)
    throw std::runtime_error(path.string() + " is not a version 1 .npy file");
  const size_t data = 10u + static_cast<uint8_t>(bytes[8]) + 256u * static_cast<uint8_t>(bytes[9]);
  const std::string header = bytes.substr(10, data - 10), type = field(header, "'descr': '", '\'');
  if (header.find("'fortran_order': False") == std::string::npos)
    throw std::runtime_error(path.string() + " is in Fortran order");
  NpyArray out;
  size_t count = 1;
  std::string dims = field(header, "'shape': (", ')');
  for (size_t at = 0; at < dims.size();
       at = dims.find(',', at) == std::string::npos ? dims.size() : dims.find(',', at) + 1) {
    if (dims.find_first_of("0123456789", at) == std::string::npos) break;
    out.shape.push_back(std::stoll(dims.substr(at)));
    count *= static_cast<size_t>(out.shape.back());
  }
  const auto as_is = [](auto x) { return x; };
  if (type == "<f4")
    out.values = widened<float>(bytes, data, count, as_is);
  else if (type == "<f8")
    out.values = widened<double>(bytes, data, count, as_is);
  else if (type == "<i8")
    out.values = widened<int64_t>(bytes, data, count, as_is);
  else if (type == "<i4")
    out.values = widened<int32_t>(bytes, data, count, as_is);
  else if (type == "<u2")
    out.values = widened<uint16_t>(bytes, data, count, [](uint16_t bits) { return to_float(bf16{bits}); });
  else
    throw std::runtime_error(path.string() + " holds " + type);
  return out;
}

}  // namespace hone::test
