#include "core/io/safetensors.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>

#include "core/io/file.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

// Returns a file with this header and data_bytes bytes of data.
std::string file_of(std::string_view header, size_t data_bytes) {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(header.size() >> (8 * i) & 255);
  return out + std::string(header) + std::string(data_bytes, '\1');
}

using test::error_of;

std::string check_error(std::string_view header, size_t data_bytes) {
  return error_of([&] { check_safetensors(file_of(header, data_bytes), "m.safetensors"); });
}

TEST(Safetensors, WritesWhatItReads) {
  const test::TemporaryFolder folder;
  std::vector<float> a(6);
  std::iota(a.begin(), a.end(), 0.5f);
  std::vector<bf16> odd{to_bf16(1), to_bf16(2), to_bf16(-3)};
  std::vector<int64_t> wide{1, -1};
  Tensor matrix = host_view<float>(a).view({2, 3});
  const std::filesystem::path path = folder.path() / "model.safetensors";
  write_safetensors(path, {{"b.odd", host_view<bf16>(odd)}, {"z", matrix}, {"wide", host_view<int64_t>(wide)}},
                    {{"format", "pt"}, {"note", "é"}});
  const SafetensorsReader reader(folder.path());
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"b.odd", "wide", "z"}));
  EXPECT_EQ(reader.metadata().at("note"), "é");
  const Tensor z = reader.at("z");
  EXPECT_EQ(z.rank, 2);
  EXPECT_EQ(z.dim(1), 3);
  EXPECT_EQ(std::memcmp(z.data, a.data(), z.bytes()), 0);
  EXPECT_EQ(std::memcmp(reader.at("b.odd").data, odd.data(), 6), 0);
  for (const std::string& name : reader.names())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(reader.at(name).data) % size_of(reader.at(name).dtype), 0u) << name;
  const std::string bytes = read_file(path);
  EXPECT_EQ((bytes.size() - 24 - 16 - 6) % 64, 0u);
  EXPECT_NE(error_of([&] { reader.at("b.od"); }).find("no tensor 'b.od'; did you mean 'b.odd'?"), std::string::npos);
}

TEST(Safetensors, ShardsAndTheirIndex) {
  const test::TemporaryFolder folder;
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), 0.0f);
  const std::span<float> all(values);
  write_safetensors(folder.path() / "model.safetensors",
                    {{"a", host_view(all.subspan(0, 32))},
                     {"b", host_view(all.subspan(32, 16))},
                     {"c", host_view(all.subspan(48, 16))}},
                    {}, 128);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "model-00001-of-00002.safetensors"));
  const SafetensorsReader reader(folder.path());
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(reader.at("c").ptr<float>()[0], 48.0f);

  const std::filesystem::path index = folder.path() / "model.safetensors.index.json";
  const std::string text = read_file(index);
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    write_file_atomic(index, changed);
    return error_of([&] { SafetensorsReader{folder.path()}; });
  };
  EXPECT_NE(with("model-00002-of-00002.safetensors", "../etc/passwd").find("is no file beside it"), std::string::npos);
  EXPECT_NE(with("model-00002-of-00002.safetensors", "model-00009-of-00002.safetensors")
                .find("model-00009-of-00002.safetensors: cannot open"),
            std::string::npos);
  EXPECT_NE(with("\"b\"", "\"q\"").find("tensor 'q' is missing"), std::string::npos);
}

TEST(Safetensors, APackedFileReadsTheSame) {
  const test::TemporaryFolder folder;
  const std::string whole = file_of(R"({"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3);
  const gzFile file = gzopen((folder.path() / "m.safetensors.gz").c_str(), "wb");
  gzwrite(file, whole.data(), static_cast<unsigned>(whole.size()));
  gzclose(file);
  const SafetensorsReader reader(folder.path() / "m.safetensors.gz");
  EXPECT_EQ(reader.at("w").ptr<uint8_t>()[2], 1);
}

TEST(Safetensors, ScalarsAndEmptyTensors) {
  EXPECT_EQ(
      check_safetensors(
          file_of(
              R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}})",
              4),
          "m")
          .size(),
      2u);
  EXPECT_TRUE(check_safetensors(file_of("{}", 0), "m").empty());
}

TEST(Safetensors, ATruncatedFileIsRefused) {
  const std::string whole = file_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  EXPECT_EQ(check_safetensors(whole, "m"), std::vector<std::string>{"w"});
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(error_of([&] { check_safetensors(whole.substr(0, size), "m.safetensors"); }).find("m.safetensors: "),
              std::string::npos)
        << size;
  EXPECT_NE(error_of([&] {
              check_safetensors(whole.substr(0, whole.size() - 1), "m");
            }).find("tensor 'w': ends at byte 8 of 7 of data: the file is cut short"),
            std::string::npos);
}

TEST(Safetensors, AHostileHeaderIsRefused) {
  EXPECT_NE(error_of([] {
              check_safetensors(std::string(8, '\xff') + "{}", "m");
            }).find("a header of 18446744073709551615 bytes in a file of 10"),
            std::string::npos);
  EXPECT_NE(error_of([] { check_safetensors(std::string("\0\0\0\0\0\0\0\x80{}", 10), "m"); }).find("a header of"),
            std::string::npos);
  EXPECT_NE(check_error("[]", 0).find("expected an object"), std::string::npos);
  EXPECT_NE(check_error("{\"w\":", 0).find("m.safetensors: header:1:"), std::string::npos);
  EXPECT_NE(check_error(std::string(5000, '[') + std::string(5000, ']'), 0).find("nested"), std::string::npos);
}

TEST(Safetensors, HostileEntriesAreRefusedByName) {
  const auto entry = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return concat(R"({"w":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)", offsets, "}}");
  };
  EXPECT_NE(check_error(entry("F8_E5M2", "[4]", "[0,4]"), 4)
                .find("tensor 'w': dtype F8_E5M2 is not supported; supported: F32, BF16"),
            std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[4294967296,4294967296]", "[0,4]"), 4).find("tensor 'w': the shape overflows"),
            std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[4611686018427387904]", "[0,0]"), 0).find("the shape overflows"),
            std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[-1]", "[0,4]"), 4).find("negative"), std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[1.5]", "[0,4]"), 4).find("expected an integer"), std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[1,1,1,1,1]", "[0,4]"), 4).find("5 dims, at most 4"), std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[1]", "[4,0]"), 4).find("run backwards"), std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[1]", "[-4,0]"), 4).find("run backwards"), std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[1]", "[0,9223372036854775807]"), 4).find("cut short"), std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[1]", "[0,18446744073709551615]"), 4).find("expected an integer"),
            std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[2]", "[0,4]"), 4).find("4 bytes of data, its shape needs 8"), std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[1]", "[0]"), 4).find("1 members, expected 2"), std::string::npos);
  EXPECT_NE(check_error(entry("F32", "[1]", "[0,4]"), 9).find("the last 5 bytes belong to no tensor"),
            std::string::npos);
  EXPECT_NE(check_error(R"({"w":{"dtype":"F32","shape":[1]}})", 4).find("tensor 'w': member 'data_offsets' is missing"),
            std::string::npos);
  EXPECT_NE(check_error(R"({"w":7})", 0).find("tensor 'w': expected an object"), std::string::npos);
}

TEST(Safetensors, OverlapsHolesAndDuplicatesAreRefused) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  EXPECT_NE(
      check_error("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6).find("tensor 'b' overlaps"),
      std::string::npos);
  EXPECT_NE(
      check_error("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4).find("tensor 'b' overlaps"),
      std::string::npos);
  EXPECT_NE(check_error("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})", 10)
                .find("2 bytes before tensor 'b' belong to none"),
            std::string::npos);
  EXPECT_NE(check_error("{" + a + "," + a + "}", 4).find("tensor 'a' appears twice"), std::string::npos);
}

TEST(Safetensors, AFolderWithoutAModelIsNamed) {
  const test::TemporaryFolder folder;
  EXPECT_NE(error_of([&] { SafetensorsReader{folder.path()}; }).find("no model.safetensors in the folder"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              SafetensorsReader{folder.path() / "none.safetensors"};
            }).find("none.safetensors: cannot open: No such file"),
            std::string::npos);
  std::ofstream(folder.path() / "empty.safetensors").flush();
  EXPECT_NE(
      error_of([&] { SafetensorsReader{folder.path() / "empty.safetensors"}; }).find("0 bytes are no safetensors file"),
      std::string::npos);
}

TEST(Safetensors, ReadsWhatHuggingFaceWrote) {
  HONE_SHARED_OR_SKIP(weights, "data/weights");
  for (const char* name : {"nano_gpt_sort", "stories260K", "verl_random_llama"}) {
    const SafetensorsReader reader(weights / name);
    EXPECT_FALSE(reader.names().empty()) << name;
    for (const std::string& tensor : reader.names()) EXPECT_GT(reader.at(tensor).size(), 0);
  }
}

}  // namespace
}  // namespace hone
