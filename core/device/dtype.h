#pragma once
// Element types of tensors, and bf16 as stored.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hone {

enum class DType : uint8_t { f32, bf16, f16, f64, i32, i64, u8, boolean };

constexpr size_t size_of(DType dtype) {
  constexpr size_t sizes[] = {4, 2, 2, 8, 4, 8, 1, 1};
  return sizes[static_cast<size_t>(dtype)];
}

// Names in recipes and messages. The readers of safetensors and config.json have the names of those formats.
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"f32", "bf16", "f16", "f64", "i32", "i64", "u8", "bool"};
  return names[static_cast<size_t>(dtype)];
}

// bfloat16 storage; arithmetic is in float. Conversion rounds to nearest even and keeps NaN.
struct bf16 {
  uint16_t bits = 0;
};

inline float to_float(bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

inline bf16 to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct dtype_of<bool> {
  static constexpr DType value = DType::boolean;
};

}  // namespace hone
