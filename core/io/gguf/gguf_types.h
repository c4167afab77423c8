#pragma once
// The tensor types of GGUF (ggml's block formats): sizes, dequantization, and quantization to Q8_0. The arithmetic is
// that of the Python package gguf (gguf/quants.py), in f32 and in its order: the numbers are equal to the bit.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hone {

struct GgufType {
  uint32_t id;          // in the file
  const char* name;     // ggml's: "Q4_K"
  int64_t block_size;   // elements of a block
  int64_t block_bytes;  // bytes of a block
  // Reads one block; nullptr: the type is known but not supported.
  void (*dequantize)(const uint8_t* block, float* out);
};

const GgufType* find_gguf_type(uint32_t id);             // nullptr: unknown
const GgufType& gguf_type_named(std::string_view name);  // a type of the table
std::string supported_gguf_types();                      // "F32, F16, ..."

// Dequantizes whole blocks. bytes: out.size() / block_size blocks. Throws Error unless the type is supported.
void dequantize(const GgufType& type, std::string_view bytes, std::span<float> out);

// Writes one block of 32 numbers as Q8_0: scale max|x| / 127 as f16, then 32 signed bytes.
void quantize_q8_0(std::span<const float, 32> values, uint8_t* block);

}  // namespace hone
