#include "core/io/gguf/gguf_types.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "core/device/dtype.h"
#include "core/device/float16.h"

namespace hone {
namespace {

float half_at(const uint8_t* bytes) { return to_float(f16{static_cast<uint16_t>(bytes[0] | bytes[1] << 8)}); }

void from_f32(const uint8_t* block, float* out) { std::memcpy(out, block, 4); }
void from_f16(const uint8_t* block, float* out) { *out = half_at(block); }
void from_bf16(const uint8_t* block, float* out) {
  *out = to_float(bf16{static_cast<uint16_t>(block[0] | block[1] << 8)});
}

// Blocks of 32: 16 bytes hold the low halves of elements 0 to 15, then the high halves for 16 to 31.
unsigned nibble(const uint8_t* bytes, int i) { return i < 16 ? bytes[i] & 15u : bytes[i - 16] >> 4; }
// The fifth bit of element i, as bit 4.
unsigned fifth_bit(const uint8_t* bytes, int i) { return (bytes[i / 8] >> (i % 8) & 1u) << 4; }

void from_q4_0(const uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int>(nibble(block + 2, i)) - 8);
}

void from_q4_1(const uint8_t* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + m;
}

void from_q5_0(const uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i)
    out[i] = d * static_cast<float>(static_cast<int>(nibble(block + 6, i) | fifth_bit(block + 2, i)) - 16);
}

void from_q5_1(const uint8_t* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 8, i) | fifth_bit(block + 4, i)) + m;
}

void from_q8_0(const uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
}

// The K formats have 256 elements a block. Element i of a 2-bit field lies in byte 32 * (i / 128) + i % 32, at bit
// 2 * (i / 32 % 4).
unsigned two_bits(const uint8_t* bytes, int i) { return bytes[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3u; }

// 16 scales of 4 bits and 16 minima of 4 bits (16 bytes), 2-bit elements (64), d, dmin.
void from_q2_k(const uint8_t* block, float* out) {
  const float d = half_at(block + 80), dmin = half_at(block + 82);
  for (int i = 0; i < 256; ++i) {
    const uint8_t scale = block[i / 16];
    const float dl = d * static_cast<float>(scale & 15), ml = dmin * static_cast<float>(scale >> 4);
    out[i] = dl * static_cast<float>(two_bits(block + 16, i)) - ml;
  }
}

// High bits (32 bytes), low 2 bits (64), 16 scales of 6 bits (12), d. A set high bit means no offset of -4.
void from_q3_k(const uint8_t* block, float* out) {
  const uint8_t* scales = block + 96;
  const float d = half_at(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int s = i / 16;
    const unsigned low = s < 8 ? scales[s] & 15u : scales[s - 8] >> 4;
    const unsigned high = scales[8 + s % 4] >> (2 * (s / 4)) & 3u;
    const float dl = d * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    const int offset = (block[i % 32] >> (i / 32) & 1u) != 0 ? 0 : 4;
    out[i] = dl * static_cast<float>(static_cast<int>(two_bits(block + 32, i)) - offset);
  }
}

// The 6-bit scale and minimum of group g of 8, packed in 12 bytes.
struct ScaleAndMin {
  float scale, min;
};
ScaleAndMin scale_and_min(const uint8_t* packed, int g) {
  if (g < 4) return {static_cast<float>(packed[g] & 63), static_cast<float>(packed[g + 4] & 63)};
  const unsigned low = packed[g + 4] & 15u, high = packed[g + 4] >> 4;
  return {static_cast<float>(low | (packed[g - 4] >> 2 & 0x30u)), static_cast<float>(high | (packed[g] >> 2 & 0x30u))};
}

// Element i of a 4-bit field lies in byte 32 * (i / 64) + i % 32: low half for even i / 32.
unsigned four_bits(const uint8_t* bytes, int i) { return bytes[32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15u; }

// d, dmin, 8 scales and minima (12 bytes), 4-bit elements (128).
void from_q4_k(const uint8_t* block, float* out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  for (int i = 0; i < 256; ++i) {
    const auto [scale, min] = scale_and_min(block + 4, i / 32);
    const float dl = d * scale, dm = dmin * min;
    out[i] = dl * static_cast<float>(four_bits(block + 16, i)) - dm;
  }
}

// d, dmin, 8 scales and minima (12 bytes), fifth bits (32), low 4 bits (128).
void from_q5_k(const uint8_t* block, float* out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  for (int i = 0; i < 256; ++i) {
    const auto [scale, min] = scale_and_min(block + 4, i / 32);
    const float dl = d * scale, dm = dmin * min;
    const unsigned high = (block[16 + i % 32] >> (i / 32) & 1u) << 4;
    out[i] = dl * static_cast<float>(four_bits(block + 48, i) | high) - dm;
  }
}

// Low 4 bits (128 bytes), high 2 bits (64), 16 scales of 8 bits, d. Within 128 elements the low halves of 64 bytes come
// first.
void from_q6_k(const uint8_t* block, float* out) {
  const float d = half_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    const float dl = d * static_cast<float>(static_cast<int8_t>(block[192 + i / 16]));
    const unsigned low = block[64 * (i / 128) + i % 64] >> (4 * (i / 64 % 2)) & 15u;
    const unsigned high = two_bits(block + 128, i) << 4;
    out[i] = dl * static_cast<float>(static_cast<int>(low | high) - 32);
  }
}

// A scale (1 byte, half of 2^(e - 127)), then 4-bit elements (16 bytes) whose values are twice those of e2m1.
void from_mxfp4(const uint8_t* block, float* out) {
  constexpr int8_t values[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const float d = std::ldexp(1.0f, static_cast<int>(block[0]) - 128);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(values[nibble(block + 1, i)]);
}

constexpr GgufType types[] = {
    {0, "F32", 1, 4, from_f32},        {1, "F16", 1, 2, from_f16},        {30, "BF16", 1, 2, from_bf16},
    {8, "Q8_0", 32, 34, from_q8_0},    {2, "Q4_0", 32, 18, from_q4_0},    {3, "Q4_1", 32, 20, from_q4_1},
    {6, "Q5_0", 32, 22, from_q5_0},    {7, "Q5_1", 32, 24, from_q5_1},    {10, "Q2_K", 256, 84, from_q2_k},
    {11, "Q3_K", 256, 110, from_q3_k}, {12, "Q4_K", 256, 144, from_q4_k}, {13, "Q5_K", 256, 176, from_q5_k},
    {14, "Q6_K", 256, 210, from_q6_k}, {9, "Q8_1", 32, 40, nullptr},      {15, "Q8_K", 256, 292, nullptr},
    {16, "IQ2_XXS", 256, 66, nullptr}, {17, "IQ2_XS", 256, 74, nullptr},  {18, "IQ3_XXS", 256, 98, nullptr},
    {19, "IQ1_S", 256, 50, nullptr},   {20, "IQ4_NL", 32, 18, nullptr},   {21, "IQ3_S", 256, 110, nullptr},
    {22, "IQ2_S", 256, 82, nullptr},   {23, "IQ4_XS", 256, 136, nullptr}, {24, "I8", 1, 1, nullptr},
    {25, "I16", 1, 2, nullptr},        {26, "I32", 1, 4, nullptr},        {27, "I64", 1, 8, nullptr},
    {28, "F64", 1, 8, nullptr},        {29, "IQ1_M", 256, 56, nullptr},   {34, "TQ1_0", 256, 54, nullptr},
    {35, "TQ2_0", 256, 66, nullptr},   {39, "MXFP4", 32, 17, from_mxfp4}, {40, "NVFP4", 64, 36, nullptr},
    {41, "Q1_0", 128, 18, nullptr},
};

// Halves away from zero.
float round_away(float x) {
  const float a = std::abs(x), floored = std::floor(a);
  const float rounded = floored + std::floor(2 * (a - floored));
  return std::copysign(rounded, x);
}

}  // namespace

const GgufType* find_gguf_type(uint32_t id) {
  const auto found = std::ranges::find(types, id, &GgufType::id);
  return found == std::end(types) ? nullptr : found;
}

const GgufType& gguf_type_named(std::string_view name) {
  const auto found = std::ranges::find(types, name, [](const GgufType& type) { return std::string_view(type.name); });
  HONE_CHECK(found != std::end(types), "gguf: no tensor type is named ", name);
  return *found;
}

std::string supported_gguf_types() {
  std::string out;
  for (const GgufType& type : types)
    if (type.dequantize) out += concat(out.empty() ? "" : ", ", type.name);
  return out;
}

void dequantize(const GgufType& type, std::string_view bytes, std::span<float> out) {
  HONE_CHECK(type.dequantize, "tensor type ", type.name, " is not supported; supported: ", supported_gguf_types());
  const auto block_size = static_cast<size_t>(std::max<int64_t>(type.block_size, 1));
  const size_t blocks = out.size() / block_size;
  HONE_CHECK(bytes.size() == blocks * static_cast<size_t>(type.block_bytes) && out.size() % block_size == 0,
             "gguf: ", bytes.size(), " bytes of ", type.name, " are not ", out.size(), " numbers");
  const auto* block = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t i = 0; i < blocks; ++i, block += type.block_bytes)
    type.dequantize(block, out.data() + i * static_cast<size_t>(type.block_size));
}

void quantize_q8_0(std::span<const float, 32> values, uint8_t* block) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  const float d = most / 127;
  const float reciprocal = d == 0 ? 0 : 1 / d;
  const float inverse = std::isfinite(reciprocal) ? reciprocal : 0;  // d below the normal range: its f16 is 0
  const uint16_t scale = to_f16(d).bits;
  block[0] = static_cast<uint8_t>(scale & 255);
  block[1] = static_cast<uint8_t>(scale >> 8);
  for (size_t i = 0; i < 32; ++i)
    block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(round_away(values[i] * inverse)));
}

}  // namespace hone
