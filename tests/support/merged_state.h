#pragma once
// The tensors of a checkpoint's section (the trainer, a reference), whole: parts of several ranks put together by their
// names.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "core/io/safetensors.h"

namespace hone::test {

// By name without a range: the dtype and the bytes. A tensor with a gap or with elements that two ranks have is a
// failure.
inline std::map<std::string, std::string> merged_state(const std::filesystem::path& checkpoint,
                                                       const std::string& section = "trainer") {
  struct Part {
    int64_t last;
    std::string dtype, bytes;
  };
  std::map<std::string, std::map<int64_t, Part>> parts;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint / "trainer")) {
    const std::string file = entry.path().filename();
    if (!file.starts_with(section) || !file.ends_with(".safetensors")) continue;
    const SafetensorsReader reader(entry.path());
    for (const std::string& name : reader.names()) {
      const Tensor tensor = reader.at(name);
      const size_t open = name.ends_with(']') ? name.rfind('[') : std::string::npos, colon = name.rfind(':');
      const bool whole = open == std::string::npos;
      const int64_t first = whole ? 0 : std::stoll(name.substr(open + 1)),
                    last = whole ? tensor.size() : std::stoll(name.substr(colon + 1));
      EXPECT_EQ(last - first, tensor.size()) << name;
      const Part part{last, std::string(name_of(tensor.dtype)),
                      std::string(static_cast<const char*>(tensor.data), tensor.bytes())};
      EXPECT_TRUE(parts[name.substr(0, open)].emplace(first, part).second) << name << " is there twice";
    }
  }
  std::map<std::string, std::string> out;
  for (const auto& [name, of_tensor] : parts) {
    std::string& whole = out[name];
    whole = of_tensor.begin()->second.dtype + " ";
    int64_t at = 0;
    for (const auto& [first, part] : of_tensor) {
      EXPECT_EQ(first, at) << name;
      whole += part.bytes;
      at = part.last;
    }
  }
  return out;
}

inline void expect_same_state(const std::filesystem::path& a, const std::filesystem::path& b,
                              const std::string& section = "trainer") {
  const std::map<std::string, std::string> one = merged_state(a, section), two = merged_state(b, section);
  EXPECT_FALSE(one.empty()) << a;
  EXPECT_EQ(one.size(), two.size()) << a << " " << b;
  for (const auto& [name, bytes] : one) {
    const auto found = two.find(name);
    ASSERT_NE(found, two.end()) << b << " lacks " << name;
    EXPECT_TRUE(found->second == bytes) << a << ": " << name;
  }
}

}  // namespace hone::test
