#include "core/io/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/support.h"

namespace hone {
namespace {

TEST(JsonlSink, AResumedRunCutsWhatItWillWriteAgain) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
  {
    const auto sink = make_jsonl_sink(path, 0);
    for (int64_t step = 1; step <= 4; ++step)
      sink->write(step, {{"loss", 0.1 * static_cast<double>(step)}, {"bad", std::nan("")}});
    sink->flush();
  }
  const std::string whole = read_file(path);
  EXPECT_EQ(whole.substr(0, whole.find('\n')), R"({"step": 1, "bad": null, "loss": 0.1})");
  std::ofstream(path, std::ios::app) << "{\"step\": 5, \"lo";  // cut by a kill
  {
    const auto sink = make_jsonl_sink(path, 3);
    for (int64_t step = 3; step <= 4; ++step)
      sink->write(step, {{"loss", 0.1 * static_cast<double>(step)}, {"bad", std::nan("")}});
  }
  EXPECT_EQ(read_file(path), whole);
}

TEST(JsonlSink, ADamagedLineIsNamed) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
  std::ofstream(path) << "{\"step\": 1}\nnoise\n";
  try {
    make_jsonl_sink(path, 10);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("metrics.jsonl:2:"), std::string::npos) << error.what();
  }
}

struct Record {
  std::string bytes;
  uint32_t length_crc = 0, crc = 0;
};

std::vector<Record> records_of(const std::filesystem::path& path) {
  const std::string all = read_file(path);
  std::vector<Record> out;
  for (size_t at = 0; at + 16 <= all.size();) {
    uint64_t length;
    Record record;
    std::memcpy(&length, all.data() + at, 8);
    std::memcpy(&record.length_crc, all.data() + at + 8, 4);
    record.bytes = all.substr(at + 12, length);
    std::memcpy(&record.crc, all.data() + at + 12 + length, 4);
    at += 16 + length;
    out.push_back(record);
  }
  return out;
}

TEST(TensorboardSink, WritesRecordsThatTensorboardReads) {
  const test::TemporaryFolder folder;
  {
    const auto sink = make_tensorboard_sink(folder.path(), 0);
    sink->write(7, {{"loss", 1.5}, {"reward", -2}});
  }
  { make_tensorboard_sink(folder.path(), 5); }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_EQ(files.size(), 2u);
  const std::vector<Record> first = records_of(files[0]);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].bytes.substr(9),
            "\x1a\x0d"
            "brain.Event:2");
  EXPECT_EQ(first[0].length_crc, 0x224b7fa3u);  // CRC of the length 24, with which every TensorFlow event file begins
  // 09 wall time, 10 step, 2a summary {0a value {0a tag, 15 float}}.
  EXPECT_EQ(first[1].bytes[0], '\x09');
  EXPECT_EQ(
      first[1].bytes.substr(9),
      std::string("\x10\x07\x2a\x1c\x0a\x0b\x0a\x04loss\x15\x00\x00\xc0\x3f\x0a\x0d\x0a\x06reward\x15\x00\x00\x00\xc0",
                  32));
  const std::vector<Record> second = records_of(files[1]);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[1].bytes.substr(9), std::string("\x10\x05\x3a\x02\x08\x01", 6));  // SessionLog START at step 5
}

TEST(MetricsJson, LeavesOutWhatJsonHasNoNumberFor) {
  const Metrics metrics{{"a", 0.1}, {"b", std::numeric_limits<double>::infinity()}, {"c", -2}};
  EXPECT_EQ(metrics_of(metrics_json(metrics)), (Metrics{{"a", 0.1}, {"c", -2}}));
}

}  // namespace
}  // namespace hone
