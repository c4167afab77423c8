#include "pretrain/token_file.h"

#include <cstring>
#include <fstream>
#include <random>

#include "core/base/parallel_for.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "pretrain/token_loader.h"
#include "tests/data/entries.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using test::entries;

// Single characters a..z: ids 4..29; the end of a text is id 1.
Tokenizer letters(const std::filesystem::path& folder) {
  JsonArray ords;
  for (int c = 'a'; c <= 'z'; ++c) ords.push_back(c);
  write_file_atomic(folder / "tokenizer_config.json", Json(JsonObject{{"char_ords", ords}}).dump());
  return Tokenizer::load(folder);
}

std::vector<int32_t> all_of(const TokenFile& file) {
  std::vector<int32_t> out(static_cast<size_t>(file.num_tokens()));
  file.read(0, out);
  return out;
}

std::string write_rows(const std::filesystem::path& path, std::span<const std::string> texts) {
  std::string lines;
  for (const std::string& text : texts) lines += Json(JsonObject{{"text", text}}).dump() + "\n";
  write_file_atomic(path, lines);
  return path.string();
}

TEST(TokenFile, HoldsDocumentsInOrderEachWithItsEnd) {
  const test::TemporaryFolder folder;
  const Tokenizer tokenizer = letters(folder.path());
  write_file_atomic(folder.path() / "c.txt", "zz");
  const std::string inputs[] = {write_rows(folder.path() / "a.jsonl", std::vector<std::string>{"ab", "", "c"}),
                                (folder.path() / "c.txt").string()};
  const TokenizeReport report = write_token_file(folder.path() / "tokens.bin", inputs, "text", tokenizer);
  EXPECT_EQ(report.documents, 4);
  EXPECT_EQ(report.bytes, 5);
  EXPECT_EQ(report.tokens, 9);
  const TokenFile file(folder.path() / "tokens.bin");
  EXPECT_EQ(file.vocab_size(), tokenizer.vocab_size());
  EXPECT_EQ(file.num_documents(), 4);
  EXPECT_EQ(all_of(file), (std::vector<int32_t>{4, 5, 1, 1, 6, 1, 29, 29, 1}));
  const int64_t starts[] = {0, 3, 4, 6, 9};
  for (int64_t d = 0; d <= 4; ++d) EXPECT_EQ(file.document_start(d), starts[d]);
  EXPECT_THROW(file.document_start(5), Error);
  std::vector<int32_t> past(2);
  EXPECT_THROW(file.read(8, past), Error);
  EXPECT_THROW(file.read(-1, past), Error);
}

TEST(TokenFile, IsTheSameWithOneAndTwoThreads) {
  const test::TemporaryFolder folder;
  const Tokenizer tokenizer = letters(folder.path());
  std::mt19937 random(1);
  std::vector<std::string> texts(3000);
  for (std::string& text : texts)
    for (uint64_t i = random() % 50; i > 0; --i) text += static_cast<char>('a' + random() % 26);
  const std::string inputs[] = {write_rows(folder.path() / "rows.jsonl", texts)};
  std::vector<std::string> bytes;
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    write_token_file(folder.path() / "tokens.bin", inputs, "text", tokenizer);
    bytes.push_back(read_file(folder.path() / "tokens.bin"));
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST(TokenFile, BadInputsAreNamedAndLeaveNothing) {
  const test::TemporaryFolder folder;
  const Tokenizer tokenizer = letters(folder.path());
  const std::filesystem::path out = folder.path() / "tokens.bin", rows = folder.path() / "rows.jsonl";
  const auto message = [&](std::string_view lines, std::string_view key) -> std::string {
    write_file_atomic(rows, lines);
    const std::string inputs[] = {rows.string()};
    try {
      write_token_file(out, inputs, key, tokenizer);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("{\"text\": \"a\"}\n{\"text\"\n", "text").find("rows.jsonl:2"), std::string::npos);
  EXPECT_NE(message("{\"text\": \"a\"}\n", "body").find("rows.jsonl:1"), std::string::npos);
  EXPECT_NE(message("{\"text\": 7}\n", "text").find("rows.jsonl:1"), std::string::npos);
  EXPECT_NE(message("", "text").find("no documents"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_FALSE(std::filesystem::exists(out.string() + ".tmp"));
}

// A well-formed file of 16-bit ids with one thing changed.
class HostileTokenFile : public testing::Test {
 protected:
  void SetUp() override {
    TokenFileHeader header;
    std::memcpy(header.magic, token_file_magic, 8);
    header.bytes_per_id = 2, header.vocab_size = 10, header.num_tokens = 3, header.num_documents = 2,
    header.documents_offset = 70;
    const uint16_t ids[] = {1, 9, 3};
    const uint64_t documents[] = {0, 2};
    bytes_.resize(86);
    std::memcpy(bytes_.data(), &header, 64);
    std::memcpy(bytes_.data() + 64, ids, 6);
    std::memcpy(bytes_.data() + 70, documents, 16);
  }
  template <class T>
  void put(size_t at, T value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  TokenFile open() const {
    std::ofstream(folder_.path() / "t.bin", std::ios::binary) << bytes_;
    return TokenFile(folder_.path() / "t.bin");
  }
  void refuses() const { EXPECT_THROW(open(), Error); }
  std::string bytes_;
  test::TemporaryFolder folder_;
};

TEST_F(HostileTokenFile, OpensWhenWellFormed) { EXPECT_EQ(all_of(open()), (std::vector<int32_t>{1, 9, 3})); }
TEST_F(HostileTokenFile, RefusesAnotherFormat) {
  put(0, 'X');
  refuses();
}
TEST_F(HostileTokenFile, RefusesIdsOfThreeBytes) {
  put(8, uint32_t{3});
  refuses();
}
TEST_F(HostileTokenFile, RefusesAnEmptyVocabulary) {
  put(12, uint32_t{0});
  refuses();
}
TEST_F(HostileTokenFile, RefusesMoreTokensThanBytes) {
  put(16, uint64_t{12});
  refuses();
}
TEST_F(HostileTokenFile, RefusesATokenCountThatOverflows) {
  put(16, uint64_t{1} << 63);
  refuses();
}
TEST_F(HostileTokenFile, RefusesADocumentCountThatOverflows) {
  put(24, uint64_t{1} << 61 | 2);
  refuses();
}
TEST_F(HostileTokenFile, RefusesATableInsideTheIds) {
  put(32, uint64_t{66});
  refuses();
}
TEST_F(HostileTokenFile, RefusesATablePastTheEnd) {
  put(32, uint64_t{1} << 40);
  refuses();
}
TEST_F(HostileTokenFile, RefusesDocumentsOutOfOrder) {
  put(70, uint64_t{3});
  refuses();
}
TEST_F(HostileTokenFile, RefusesADocumentPastTheTokens) {
  put(78, uint64_t{4});
  refuses();
}
TEST_F(HostileTokenFile, RefusesATornFile) {
  for (const size_t size : {0, 10, 63, 64, 69, 85}) {
    const std::string whole = bytes_;
    bytes_.resize(size);
    EXPECT_THROW(open(), Error) << size;
    bytes_ = whole;
  }
}
TEST_F(HostileTokenFile, RefusesAnIdPastTheVocabularyWhenItIsRead) {
  put(66, uint16_t{10});
  const TokenFile file = open();
  std::vector<int32_t> one(1);
  file.read(0, one);
  EXPECT_THROW(file.read(1, one), Error);
}
TEST_F(HostileTokenFile, RefusesAFolder) { EXPECT_THROW(TokenFile(folder_.path()), Error); }

TEST_F(HostileTokenFile, WindowsNeedEnoughTokens) {
  const TokenFile file = open();
  EXPECT_THROW(TokenLoader(file, 4, 1), Error);
  EXPECT_THROW(TokenLoader(file, 1, 1), Error);
  TokenLoader loader(file, 3, 1);
  const Sample sample = loader.next();
  EXPECT_EQ(sample.tokens, (std::vector<int32_t>{1, 9, 3}));
  EXPECT_EQ(entries(sample, columns::mask), (std::vector<float>{0, 1, 1}));
  EXPECT_EQ(loader.epochs_done(), 1);
}

}  // namespace
}  // namespace hone
