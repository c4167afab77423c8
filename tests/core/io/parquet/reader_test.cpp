#include "core/io/parquet/reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "core/io/parquet/bits.h"
#include "core/io/parquet/thrift.h"
#include "core/io/parquet/values.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using test::error_of;

// The time of an ISO 8601 text in the unit, as in expected.jsonl.gz.
int64_t time_of(const std::string& text, const std::string& unit) {
  std::tm parts{};
  long long year = 0;
  int month = 0;
  char fraction[16] = "";
  HONE_CHECK(std::sscanf(text.c_str(), "%lld-%d-%dT%d:%d:%d.%15[0-9]", &year, &month, &parts.tm_mday, &parts.tm_hour,
                         &parts.tm_min, &parts.tm_sec, fraction) == 7,
             text, ": not a timestamp");
  parts.tm_year = static_cast<int>(year - 1900);
  parts.tm_mon = month - 1;
  std::string digits = fraction;
  digits.resize(unit == "ns" ? 9 : unit == "us" ? 6 : 3, '0');
  const uint64_t scale = unit == "ns" ? 1000000000 : unit == "us" ? 1000000 : 1000;
  // Unsigned: before the fraction is added, the earliest time is below the range of int64.
  return static_cast<int64_t>(static_cast<uint64_t>(::timegm(&parts)) * scale + std::stoull(digits));
}

// True if the value is what expected.jsonl.gz says: pyarrow's, with {"$ts"}, {"$dec"}, {"$f"} and {"$b64"}.
bool is_expected(const Json& value, const Json& expected) {
  if (const Json* time = expected.find("$ts"))
    return value.is_string() && time_of(value.as_string(), expected.at("unit").as_string()) == time->as_int();
  if (const Json* decimal = expected.find("$dec")) return value == *decimal;
  if (const Json* number = expected.find("$f"))
    return value.is_number() &&
           (number->as_string() == "nan" ? std::isnan(value.as_double()) : std::isinf(value.as_double()));
  if (expected.is_array()) {
    if (!value.is_array() || value.as_array().size() != expected.as_array().size()) return false;
    for (size_t i = 0; i < value.as_array().size(); ++i)
      if (!is_expected(value.as_array()[i], expected.as_array()[i])) return false;
    return true;
  }
  if (expected.is_object()) {
    if (!value.is_object() || value.as_object().size() != expected.as_object().size()) return false;
    for (const auto& [name, member] : expected.as_object())
      if (!value.find(name) || !is_expected(*value.find(name), member)) return false;
    return true;
  }
  if (expected.is_number() && value.is_number()) return value.as_double() == expected.as_double();
  return value == expected;
}

JsonArray rows_of(const std::filesystem::path& path) {
  JsonArray out;
  const std::unique_ptr<RowReader> reader = open_parquet_rows(path);
  for (Json row; reader->next(row);) out.push_back(row);
  return out;
}

TEST(ParquetReader, GivesTheRowsOfEveryFixture) {
  HONE_SHARED_OR_SKIP(folder, "data/formats/parquet");
  size_t files = 0;
  read_jsonl(folder / "expected.jsonl.gz", [&](const Json& row, int64_t) {
    const std::string name = row.at("file").as_string();
    const Json& expected = row.at("rows");
    if (!row.at("ok").as_bool() || !std::filesystem::exists(folder / name)) return;
    ++files;
    const JsonArray rows = rows_of(folder / name);
    const size_t count = expected.is_null() ? 0 : expected.as_array().size();
    ASSERT_EQ(rows.size(), count) << name;
    for (size_t i = 0; i < count; ++i)
      ASSERT_TRUE(is_expected(rows[i], expected.as_array()[i]))
          << name << " row " << i + 1 << ": " << rows[i].dump() << " instead of " << expected.as_array()[i].dump();
  });
  EXPECT_GE(files, 40u);
}

TEST(ParquetReader, GivesConversationsOfEveryCodecAndEncoding) {
  HONE_SHARED_OR_SKIP(folder, "data/formats/parquet");
  JsonArray expected;
  read_jsonl(folder / "conversations_expected.jsonl", [&](const Json& row, int64_t) { expected.push_back(row); });
  for (const char* name : {"conv_gzip_plain", "conv_lz4", "conv_none_delta", "conv_snappy_dict_v1", "conv_zstd_v2"}) {
    const JsonArray rows = rows_of(folder / concat(name, ".parquet"));
    ASSERT_EQ(rows.size(), expected.size()) << name;
    for (size_t i = 0; i < rows.size(); ++i) ASSERT_TRUE(is_expected(rows[i], expected[i])) << name << " row " << i + 1;
  }
}

TEST(ParquetReader, DamagedFixturesAreErrors) {
  HONE_SHARED_OR_SKIP(folder, "data/formats/parquet/bad");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string error = error_of([&] { rows_of(entry.path()); });
    // Its indices have no bits, so all are the valid index 0.
    if (entry.path().filename() == "ARROW-GH-43605.parquet") continue;
    EXPECT_NE(error.find(entry.path().filename().string()), std::string::npos) << entry.path() << ": " << error;
  }
}

// Reads at most 1000 rows: a file of a few bytes may have any number of nulls.
void read_some(const std::string& bytes) {
  try {
    const std::unique_ptr<RowReader> reader = open_parquet_bytes(bytes, "damaged");
    Json row;
    for (int i = 0; i < 1000 && reader->next(row); ++i) row.dump();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("damaged")) << error.what();
  }
}

// Files that pyarrow wrote.
std::filesystem::path corpus() { return test::source_folder() / "tests/fuzz/corpus/parquet"; }

TEST(ParquetReader, GivesTheRowsThatPyarrowWrote) {
  const Json expected = parse_json(R"([
      {"id": 1, "score": 0.5, "tags": ["a", "b"], "messages": [{"content": "Hi", "role": "user"},
       {"content": null, "role": "assistant"}], "ok": true},
      {"id": null, "score": -1.5, "tags": [], "messages": null, "ok": null},
      {"id": 3, "score": 2.0, "tags": null, "messages": [], "ok": false},
      {"id": 4, "score": 0.25, "tags": [null, "c"], "messages": [{"content": "\u00e9", "role": "user"}], "ok": true}])",
                                   "expected");
  for (const char* name : {"snappy_v1", "zstd_v2", "gzip_plain", "lz4_checksum"})
    EXPECT_TRUE(is_expected(Json(rows_of(corpus() / concat(name, ".parquet"))), expected)) << name;
  const JsonArray delta = rows_of(corpus() / "delta.parquet");
  ASSERT_EQ(delta.size(), 20u);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(delta[static_cast<size_t>(i)],
              Json(JsonObject{{"n", i * i - 7}, {"s", concat("prefix", i)}, {"f", i / 3.0}}));
}

void damage_files_of(const std::filesystem::path& folder) {
  uint64_t random = 1;
  const auto next = [&] { return random = random * 6364136223846793005u + 1442695040888963407u; };
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".parquet" || entry.file_size() > 20000) continue;
    const std::string bytes = read_file(entry.path());
    for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 40) {
      const std::string cut = bytes.substr(0, size);
      EXPECT_THROW(open_parquet_bytes(cut, "cut"), Error) << entry.path() << " " << size;
    }
    for (int i = 0; i < 150; ++i) {
      std::string changed = bytes;
      for (int j = 0; j <= i % 3; ++j) {
        const uint64_t draw = next();
        // Half of the changes are in the footer, where lengths and offsets are.
        const size_t from = draw % 2 == 0 ? 0 : bytes.size() - std::min<size_t>(bytes.size(), 400);
        changed[from + (draw >> 20) % (bytes.size() - from)] = static_cast<char>(draw >> 50);
      }
      read_some(changed);
    }
  }
}

TEST(ParquetReader, EveryCutAndManyChangedBytesGiveRowsOrAnError) {
  damage_files_of(corpus());
  HONE_SHARED_OR_SKIP(folder, "data/formats/parquet");
  damage_files_of(folder);
}

TEST(ParquetReader, WhatIsNoParquetFileIsAnErrorThatSaysSo) {
  const test::TemporaryFolder folder;
  const auto error = [&](std::string_view bytes) {
    write_file_atomic(folder.path() / "x.parquet", bytes);
    return error_of([&] { rows_of(folder.path() / "x.parquet"); });
  };
  EXPECT_NE(error("{\"a\": 1}").find("x.parquet: this is no Parquet file"), std::string::npos);
  EXPECT_NE(error("PARE1234PARE").find("x.parquet: the file is encrypted"), std::string::npos);
  EXPECT_NE(error("PAR1").find("it is cut off"), std::string::npos);
  EXPECT_NE(error("PAR1 and then nothing").find("does not end with PAR1; it is cut off"), std::string::npos);
  EXPECT_NE(error(std::string_view("PAR1\xFF\xFF\xFF\x7FPAR1", 12)).find("the metadata have 2147483647 bytes"),
            std::string::npos);
  EXPECT_NE(error("").find("this is no Parquet file"), std::string::npos);
}

TEST(ParquetThrift, ListsLongerThanTheBytesAndDeepNestingAreErrors) {
  const auto metadata = [](const std::string& bytes) { return error_of([&] { parquet::parse_metadata(bytes); }); };
  // Field 2, a list of 2^28 structs.
  EXPECT_NE(metadata(std::string("\x29\xFC\xFF\xFF\xFF\x7F\x00", 7)).find("the metadata end within a list"),
            std::string::npos);
  EXPECT_NE(metadata(std::string(1000, '\x1C')).find("nested more than 32 deep"), std::string::npos);
  EXPECT_NE(metadata(std::string("\x1F", 1)).find("unknown type 15"), std::string::npos);
}

TEST(ParquetBits, RunsAreRepeatedOrPacked) {
  // Five times 3, then eight values of two bits: 0 1 2 3 0 1 2 3.
  const std::string bytes = "\x0A\x03\x03\xE4\xE4";
  parquet::RunDecoder runs(bytes, 2);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(runs.next(), 3u);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(runs.next(), i % 4);
  EXPECT_THROW(runs.next(), Error);
}

TEST(ParquetValues, DatesDecimalsAndTimesAreTexts) {
  using namespace parquet;
  const auto json = [](Leaf leaf, int64_t integer) {
    StoredValue value;
    value.integer = integer;
    return to_json(leaf, value).dump();
  };
  Leaf leaf;
  leaf.annotation.meaning = Meaning::date;
  EXPECT_EQ(json(leaf, 0), "\"1970-01-01\"");
  EXPECT_EQ(json(leaf, -719528), "\"0000-01-01\"");
  EXPECT_EQ(json(leaf, 19782), "\"2024-02-29\"");
  leaf.type = PhysicalType::int64;
  leaf.annotation = {.meaning = Meaning::decimal, .scale = 3};
  EXPECT_EQ(json(leaf, -5), "\"-0.005\"");
  EXPECT_EQ(json(leaf, INT64_MIN), "\"-9223372036854775.808\"");
  leaf.annotation = {.meaning = Meaning::timestamp, .unit = TimeUnit::microseconds, .utc = true};
  EXPECT_EQ(json(leaf, -1), "\"1969-12-31T23:59:59.999999Z\"");
  EXPECT_EQ(json(leaf, INT64_MIN).size(), std::string("\"-290308-12-21T19:59:05.224192Z\"").size());
  leaf.annotation = {.meaning = Meaning::time, .unit = TimeUnit::milliseconds};
  EXPECT_EQ(json(leaf, 86399999), "\"23:59:59.999\"");
}

}  // namespace
}  // namespace hone
