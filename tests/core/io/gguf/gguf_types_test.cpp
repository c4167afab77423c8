// Dequantization against the Python package gguf 0.19: hashes of its results on pseudo-random blocks.
#include "core/io/gguf/gguf_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/device/float16.h"
#include "tests/support/errors.h"

namespace hone {
namespace {

class Bytes {
 public:
  explicit Bytes(uint64_t seed) : state_(seed) {}
  uint8_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint8_t>(state_ >> 33);
  }

 private:
  uint64_t state_;
};

uint64_t fnv(const void* data, size_t size) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 1099511628211u;
  return hash;
}

// Where a block has its f16 scales.
std::vector<size_t> scale_offsets(std::string_view type) {
  if (type == "Q4_1" || type == "Q5_1" || type == "Q4_K" || type == "Q5_K") return {0, 2};
  if (type == "Q2_K") return {80, 82};
  if (type == "Q3_K") return {108};
  if (type == "Q6_K") return {208};
  if (type == "MXFP4") return {};
  return {0};
}

// Blocks of 1,024 numbers without infinities and NaN.
std::string random_blocks(const GgufType& type) {
  const auto size = static_cast<size_t>(type.block_bytes), count = static_cast<size_t>(1024 / type.block_size);
  const std::string_view name = type.name;
  Bytes random(type.id + 1);
  std::string out(size * count, '\0');
  for (char& byte : out) byte = static_cast<char>(random.next());
  for (size_t i = 0; i < count; ++i) {
    char* block = out.data() + i * size;
    if (name == "F32" || name == "BF16") {
      char& top = block[size - 1];
      if ((top & 0x7f) == 0x7f) top ^= 0x40;
      continue;
    }
    if (name == "MXFP4") block[0] = static_cast<char>(block[0] & 0x7f);
    for (const size_t offset : scale_offsets(name))
      if ((block[offset + 1] & 0x7c) == 0x7c) block[offset + 1] = static_cast<char>((block[offset + 1] & 0x83) | 0x3c);
  }
  return out;
}

struct Reference {
  const char* type;
  uint64_t hash;  // of the 1,024 floats
};

class GgufTypes : public testing::TestWithParam<Reference> {};

TEST_P(GgufTypes, DequantizesAsThePythonPackageToTheBit) {
  const GgufType& type = gguf_type_named(GetParam().type);
  std::vector<float> numbers(1024);
  dequantize(type, random_blocks(type), numbers);
  for (const float number : numbers) ASSERT_TRUE(std::isfinite(number));
  EXPECT_EQ(fnv(numbers.data(), numbers.size() * sizeof(float)), GetParam().hash);
}

INSTANTIATE_TEST_SUITE_P(All, GgufTypes,
                         testing::Values(Reference{"F32", 0x853545569f747c16u}, Reference{"F16", 0xa43dd0f33ca1985du},
                                         Reference{"BF16", 0xc30567a8fb3d75d8u}, Reference{"Q8_0", 0xb968753ef842f3c8u},
                                         Reference{"Q4_0", 0x656638677d81bcceu}, Reference{"Q4_1", 0x4f70e2e8fefe5570u},
                                         Reference{"Q5_0", 0x393b64dd1c50a339u}, Reference{"Q5_1", 0xd6e7aa237a340ca1u},
                                         Reference{"Q2_K", 0x6938b3c194ab2c95u}, Reference{"Q3_K", 0x807d24dd0913d9bdu},
                                         Reference{"Q4_K", 0xfe684e332a3e4480u}, Reference{"Q5_K", 0xcfd6f81e704f546fu},
                                         Reference{"Q6_K", 0x321a9d7a3267d704u},
                                         Reference{"MXFP4", 0x5aea2b60ae707f5fu}),
                         [](const auto& given) { return std::string(given.param.type); });

TEST(GgufTypesTest, QuantizesToQ8AsThePythonPackageToTheBit) {
  Bytes random(99);
  std::vector<float> numbers(4096);
  for (float& number : numbers) {
    const int low = random.next(), high = random.next();
    const int shift = random.next() % 24;
    number = static_cast<float>((low | high << 8) - 32768) * std::ldexp(1.0f, -shift);
  }
  std::vector<uint8_t> blocks(4096 / 32 * 34);
  for (size_t i = 0; i < 128; ++i)
    quantize_q8_0(std::span<const float, 32>(numbers.data() + 32 * i, 32), blocks.data() + 34 * i);
  EXPECT_EQ(fnv(blocks.data(), blocks.size()), 0x16faa282c04ebd2cu);
}

TEST(GgufTypesTest, ABlockOfZerosAndOfTinyNumbersHasNoNan) {
  for (const float value : {0.0f, 1e-41f, -1e-44f}) {
    const std::vector<float> numbers(32, value);
    uint8_t block[34];
    quantize_q8_0(std::span<const float, 32>(numbers.data(), 32), block);
    std::vector<float> again(32);
    dequantize(gguf_type_named("Q8_0"), {reinterpret_cast<const char*>(block), 34}, again);
    for (const float number : again) EXPECT_EQ(number, 0);
  }
}

TEST(GgufTypesTest, UnsupportedTypesAndWrongSizesAreRefused) {
  std::vector<float> out(256);
  EXPECT_EQ(test::error_of([&] { dequantize(gguf_type_named("IQ2_XS"), std::string(74, '\0'), out); }),
            "tensor type IQ2_XS is not supported; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, "
            "Q4_K, Q5_K, Q6_K, MXFP4");
  EXPECT_NE(test::error_of([&] { dequantize(gguf_type_named("Q4_K"), std::string(143, '\0'), out); }).find("143 bytes"),
            std::string::npos);
  EXPECT_EQ(find_gguf_type(4), nullptr);
  EXPECT_EQ(find_gguf_type(1u << 31), nullptr);
}

}  // namespace
}  // namespace hone
