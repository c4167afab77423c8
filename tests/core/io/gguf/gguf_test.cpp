#include "core/io/gguf/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "core/base/rng.h"
#include "core/io/file.h"
#include "core/io/gguf/gguf_writer.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using test::error_of;

// Builds a file value by value.
class Bytes {
 public:
  template <class T>
  Bytes& put(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out_.append(bytes, sizeof(T));
    return *this;
  }
  Bytes& text(std::string_view text) {
    put(uint64_t{text.size()});
    out_ += text;
    return *this;
  }
  Bytes& header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    out_ += "GGUF";
    return put(version).put(tensors).put(keys);
  }
  Bytes& tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset) {
    text(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) put(dim);
    return put(type).put(offset);
  }
  Bytes& data(size_t bytes) {
    out_.resize((out_.size() + 31) / 32 * 32 + bytes);
    return *this;
  }
  const std::string& done() const { return out_; }

 private:
  std::string out_;
};

std::string problem(const Bytes& bytes) {
  return error_of([&] { parse_gguf(bytes.done(), "m.gguf"); });
}

void expect_problem(const Bytes& bytes, const std::string& words) {
  const std::string found = problem(bytes);
  EXPECT_NE(found.find(words), std::string::npos) << found;
  EXPECT_TRUE(found.starts_with("m.gguf: ")) << found;
}

// A file with keys of several types and two tensors.
std::string small_file() {
  GgufWriter writer("llama");
  writer.count("block_count", 2);
  writer.number("attention.layer_norm_rms_epsilon", 1e-5);
  writer.set_flag("tokenizer.ggml.add_bos_token", true);
  writer.set_texts("tokenizer.ggml.tokens", {"a", "é", ""});
  writer.set_i32s("tokenizer.ggml.token_type", {1, 3, -1});
  writer.set_f32s("tokenizer.ggml.scores", {0.5f, -1000, 0.1f});
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), 0.5f);
  writer.add_tensor("blk.0.w.weight", gguf_type_named("Q8_0"), {2, 32},
                    [values] { return encode_gguf(gguf_type_named("Q8_0"), values); });
  writer.add_tensor("norm", gguf_type_named("F32"), {3},
                    [values] { return encode_gguf(gguf_type_named("F32"), std::span(values).first(3)); });
  const test::TemporaryFolder folder;
  writer.write(folder.path() / "m.gguf");
  return read_file(folder.path() / "m.gguf");
}

TEST(Gguf, ReadsWhatItWrites) {
  const std::string bytes = small_file();
  const GgufContents file = parse_gguf(bytes, "m.gguf");
  EXPECT_EQ(file.metadata.at("general.architecture").as_string(), "llama");
  EXPECT_EQ(file.metadata.at("llama.block_count").as_int(), 2);
  EXPECT_EQ(file.metadata.at("llama.attention.layer_norm_rms_epsilon").as_double(), 1e-5);  // not 9.99e-06
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.add_bos_token").as_bool(), true);
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.tokens").dump(), R"(["a", "é", ""])");
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.token_type").dump(), "[1, 3, -1]");
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.scores").as_array()[1].as_double(), -1000);
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.scores").as_array()[2].as_double(), 0.1);
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors[0].shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(file.tensors[0].bytes.size(), 68u);
  EXPECT_EQ(file.tensors[1].bytes.size(), 12u);
  EXPECT_EQ((file.tensors[1].bytes.data() - bytes.data()) % 32, 0);
  float third;
  std::memcpy(&third, file.tensors[1].bytes.data() + 8, 4);
  EXPECT_EQ(third, 2.5f);
}

TEST(Gguf, ATruncatedFileIsRefusedAtEveryByte) {
  const std::string whole = small_file();
  const size_t data_end = whole.size() - 20;  // the last tensor's 12 bytes are padded to 32
  for (size_t size = 0; size < data_end; ++size) {
    const std::string found = error_of([&] { parse_gguf(whole.substr(0, size), "m.gguf"); });
    EXPECT_TRUE(found.starts_with("m.gguf: ")) << size << " " << found;
  }
  EXPECT_EQ(parse_gguf(whole.substr(0, data_end), "m").tensors.size(), 2u);
}

TEST(Gguf, ChangedBytesAreReadOrRefused) {
  const std::string whole = small_file();
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Rng rng(seed);
    std::string changed = whole;
    for (uint64_t n = 1 + rng.below(4); n > 0; --n) {
      const uint64_t at = rng.below(rng.below(2) == 0 ? changed.size() : 64);
      const char extreme[] = {0, 1, 127, -128, -1};
      changed[at] = rng.below(2) == 0 ? extreme[rng.below(5)] : static_cast<char>(rng.below(256));
    }
    try {
      for (const GgufTensor& tensor : parse_gguf(changed, "m").tensors) {
        EXPECT_GE(tensor.bytes.data(), changed.data());
        EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), changed.data() + changed.size());
        EXPECT_EQ(tensor.bytes.size(), static_cast<size_t>(tensor.rows() * tensor.columns() / tensor.type->block_size *
                                                           tensor.type->block_bytes));
      }
    } catch (const Error&) {}
  }
}

TEST(Gguf, MagicAndVersion) {
  EXPECT_NE(error_of([] { parse_gguf("lmggxxxx", "m.gguf"); }).find("does not begin with the letters GGUF"),
            std::string::npos);
  expect_problem(Bytes().header(0, 0, 1), "GGUF version 1; versions 2 and 3 are supported");
  expect_problem(Bytes().header(0, 0, 4), "GGUF version 4");
  expect_problem(Bytes().header(0, 0, 0x03000000), "a big-endian GGUF file");
  EXPECT_EQ(problem(Bytes().header(0, 0, 2)), "no error");
}

TEST(Gguf, CountsAndLengthsAreCheckedBeforeAllocation) {
  expect_problem(Bytes().header(uint64_t{1} << 62, 0).data(64), "tensors do not fit into the file's");
  expect_problem(Bytes().header(0, uint64_t{1} << 62).data(64), "keys do not fit into the file's");
  expect_problem(Bytes().header(0, 1).put(uint64_t{1} << 40).data(64),
                 "a string of 1099511627776 bytes, at most 65535");
  expect_problem(Bytes().header(0, 1).text("k").put(uint32_t{8}).put(UINT64_MAX).data(32), "key 'k': ");
  const auto array = [](uint32_t type, uint64_t count) {
    return Bytes().header(0, 1).text("k").put(uint32_t{9}).put(type).put(count).data(96);
  };
  expect_problem(array(4, uint64_t{1} << 60), "key 'k': an array of 1152921504606846976 values, but only");
  expect_problem(array(8, UINT64_MAX / 4), "key 'k': an array of");
  expect_problem(array(13, 1), "key 'k': value type 13 is unknown");
}

TEST(Gguf, KeysHaveOneValueOfAKnownType) {
  expect_problem(
      Bytes().header(0, 2).text("k").put(uint32_t{7}).put(uint8_t{1}).text("k").put(uint32_t{7}).put(uint8_t{0}),
      "key 'k' appears twice");
  expect_problem(Bytes().header(0, 1).text("k").put(uint32_t{99}).data(32), "key 'k': value type 99 is unknown");
  expect_problem(Bytes().header(0, 1).text("k").put(uint32_t{7}).put(uint8_t{2}), "key 'k': a boolean is 2");
  expect_problem(Bytes().header(0, 1).text("").put(uint32_t{7}).put(uint8_t{1}).data(32), "key 0 has an empty name");
  expect_problem(Bytes().header(0, 1).text("a\nb").put(uint32_t{7}).put(uint8_t{1}).data(32), "control characters");
  expect_problem(Bytes().header(0, 1).text("k").put(uint32_t{10}).put(UINT64_MAX), "key 'k': 18446744073709551615 is");
  Bytes nested;
  nested.header(0, 1).text("k").put(uint32_t{9});
  for (int depth = 0; depth < 6; ++depth) nested.put(uint32_t{9}).put(uint64_t{1});
  expect_problem(nested.data(64), "key 'k': arrays are nested deeper than 4");
}

TEST(Gguf, ShapesTypesAndOffsetsOfTensors) {
  const auto one = [](std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset, size_t data) {
    return Bytes().header(1, 0).tensor("t", dims, type, offset).data(data);
  };
  EXPECT_EQ(problem(one({32}, 0, 0, 128)), "no error");
  expect_problem(one({32}, 0, 0, 127), "tensor 't': 128 bytes at byte 0 of 127 of data: the file is cut short");
  expect_problem(one({32}, 0, 32, 128), "tensor 't': 128 bytes at byte 32");
  expect_problem(one({32}, 0, 8, 256), "its offset 8 is not a multiple of 32 (general.alignment)");
  expect_problem(one({32}, 0, UINT64_MAX - 31, 128), "tensor 't': 128 bytes at byte");
  expect_problem(one({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0, 64), "the shape overflows");
  expect_problem(one({UINT64_MAX}, 0, 0, 64), "dim 0 is 18446744073709551615");
  expect_problem(one({0, 4}, 0, 0, 64), "dim 0 is 0; it must be 1 or more");
  expect_problem(one({1, 1, 1, 1, 1}, 0, 0, 64), "5 dims, at most 4");
  expect_problem(one({32}, 4, 0, 64), "tensor type 4 is unknown; supported: F32, F16");
  expect_problem(one({33}, 8, 0, 64), "rows of 33 are not a multiple of the 32 elements of a Q8_0 block");
  expect_problem(Bytes().header(2, 0).tensor("t", {8}, 0, 0).tensor("t", {8}, 0, 32).data(64), "appears twice");
  expect_problem(Bytes().header(2, 0).tensor("a", {16}, 0, 0).tensor("b", {8}, 0, 32).data(64),
                 "tensor 'b' at byte 32 of the data overlaps 'a'");
  expect_problem(Bytes().header(1, 0).tensor(std::string(64, 'n'), {8}, 0, 0).data(64), "at most 63 are allowed");
}

TEST(Gguf, TheAlignmentIsAPowerOfTwo) {
  const auto aligned = [](uint32_t alignment) {
    return Bytes()
        .header(1, 1)
        .text("general.alignment")
        .put(uint32_t{4})
        .put(alignment)
        .tensor("t", {1}, 0, 0)
        .data(64);
  };
  EXPECT_EQ(problem(aligned(8)), "no error");
  for (const uint32_t wrong : {0u, 24u, 1u << 31})
    expect_problem(aligned(wrong),
                   "key 'general.alignment' is " + std::to_string(wrong) + "; it must be a power of two");
}

// Writes a file of a split model.
void write_shard(const std::filesystem::path& path, int64_t index, int64_t count, const std::string& tensor) {
  GgufWriter writer("llama");
  writer.set_u32("split.no", index);
  writer.set_u32("split.count", count);
  writer.set_u32("split.tensors.count", 2);
  writer.add_tensor(tensor, gguf_type_named("F32"), {1}, [] { return std::string(4, '\1'); });
  writer.write(path);
}

TEST(Gguf, ASplitModelIsOneModel) {
  const test::TemporaryFolder folder;
  const std::filesystem::path first = folder.path() / "m-00001-of-00002.gguf",
                              second = folder.path() / "m-00002-of-00002.gguf";
  write_shard(first, 0, 2, "a");
  EXPECT_NE(error_of([&] { GgufReader{first}; }).find("m-00002-of-00002.gguf: cannot open"), std::string::npos);
  write_shard(second, 1, 2, "b");
  const GgufReader reader(first);
  EXPECT_EQ(reader.tensors().size(), 2u);
  EXPECT_NE(reader.find_tensor("b"), nullptr);
  EXPECT_NE(error_of([&] { GgufReader{second}; }).find("file 2 of a model of 2 files; give the first one"),
            std::string::npos);
  write_shard(second, 1, 2, "a");
  EXPECT_NE(error_of([&] { GgufReader{first}; }).find("tensor 'a' is in another file too"), std::string::npos);
  write_shard(second, 0, 2, "b");
  EXPECT_NE(error_of([&] { GgufReader{first}; }).find("key 'split.no' must be 1"), std::string::npos);
  std::filesystem::rename(first, folder.path() / "renamed.gguf");
  EXPECT_NE(
      error_of([&] { GgufReader{folder.path() / "renamed.gguf"}; }).find("must be named NAME-00001-of-00002.gguf"),
      std::string::npos);
}

TEST(Gguf, AFileIsKnownByNameOrContent) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "empty.gguf", "");
  write_file_atomic(folder.path() / "model.bin", small_file());
  write_file_atomic(folder.path() / "text.txt", "GGU");
  EXPECT_TRUE(is_gguf(folder.path() / "empty.gguf"));
  EXPECT_TRUE(is_gguf(folder.path() / "model.bin"));
  EXPECT_FALSE(is_gguf(folder.path() / "text.txt"));
  EXPECT_FALSE(is_gguf(folder.path()));
  EXPECT_FALSE(is_gguf(folder.path() / "missing.gguf"));
}

TEST(Gguf, AKeyOfAnotherKindIsAnErrorWithItsName) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "m.gguf", small_file());
  const GgufReader reader(folder.path() / "m.gguf");
  EXPECT_EQ(reader.integer("missing", 5), 5);
  EXPECT_NE(error_of([&] { reader.integer("general.architecture", 0); }).find("m.gguf: key 'general.architecture'"),
            std::string::npos);
  EXPECT_NE(error_of([&] { reader.text("llama.block_count", ""); }).find("key 'llama.block_count'"), std::string::npos);
}

}  // namespace
}  // namespace hone
