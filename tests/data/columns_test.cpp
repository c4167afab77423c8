#include "data/columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/io/jsonl.h"
#include "data/sample_json.h"
#include "tests/data/entries.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using test::entries;

const Column per_token = register_column("test_per_token", {.doc = "two floats a token", .width = 2});
const Column per_sequence = register_column("test_per_sequence", {.doc = "one for all", .per_sequence = true});

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Sample sample_of(std::vector<int32_t> tokens) {
  Sample out;
  out.tokens = std::move(tokens);
  set_mask(out);
  return out;
}

TEST(Columns, AreListedByNameAndFoundByIt) {
  EXPECT_TRUE(std::ranges::is_sorted(all_columns(), {}, &Column::name));
  ASSERT_TRUE(find_column("mask"));
  EXPECT_EQ(*find_column("mask"), columns::mask);
  EXPECT_FALSE(find_column("mas"));
  for (const Column column : all_columns()) {
    EXPECT_FALSE(column.info().doc.empty()) << column.name();
    EXPECT_EQ(*find_column(column.name()), column);
  }
}

TEST(Columns, ANameIsRegisteredOnce) {
  EXPECT_NE(message_of([] { register_column("mask", {.doc = "again"}); }).find("'mask' is registered twice"),
            std::string::npos);
}

TEST(Columns, AnAbsentColumnIsNamed) {
  Columns table;
  EXPECT_FALSE(table.has(columns::advantage));
  EXPECT_TRUE(table.find(columns::advantage).empty());
  EXPECT_NE(message_of([&] { table[columns::advantage]; }).find("column advantage"), std::string::npos);
  table.assign(columns::advantage, 3, 0.5f);
  table[columns::advantage][1] = 2;
  EXPECT_EQ(table.find(columns::advantage)[1], 2);
  table.erase(columns::advantage);
  EXPECT_FALSE(table.has(columns::advantage));
}

TEST(Columns, TruncatingKeepsWhatIsASequences) {
  Sample sample = sample_of({1, 2, 3});
  sample.columns.assign(per_token, 6, 7);
  sample.columns.set(per_sequence, {5});
  sample.columns.truncate(2);
  EXPECT_EQ(entries(sample, columns::mask), (std::vector<float>{0, 1}));
  EXPECT_EQ(entries(sample, per_token).size(), 4u);
  EXPECT_EQ(entries(sample, per_sequence), std::vector<float>{5});
}

TEST(JoinColumns, LaysSamplesEndToEnd) {
  Sample a = sample_of({1, 2}), b = sample_of({3}), without_tokens;
  a.columns.set(per_token, {1, 2, 3, 4});
  b.columns.set(per_token, {5, 6});
  a.columns.set(per_sequence, {7});
  b.columns.set(per_sequence, {8});
  Columns out;
  out.assign(columns::advantage, 2, 9);  // of an earlier batch
  join_columns(std::vector<const Sample*>{&a, &b}, out);
  EXPECT_TRUE(std::ranges::equal(out[columns::mask], std::vector<float>{0, 1, 0}));
  EXPECT_TRUE(std::ranges::equal(out[per_token], std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(std::ranges::equal(out[per_sequence], std::vector<float>{7, 8}));
  EXPECT_FALSE(out.has(columns::advantage));
  b.columns.erase(per_sequence);
  a.columns.erase(per_sequence);
  join_columns(std::vector<const Sample*>{&a, &without_tokens, &b}, out);
  EXPECT_TRUE(std::ranges::equal(out[columns::mask], std::vector<float>{0, 1, 0}));
}

TEST(JoinColumns, AColumnThatSomeSamplesLackIsNamed) {
  Sample a = sample_of({1, 2}), b = sample_of({3, 4});
  a.columns.assign(columns::reference_logp, 2, -1);
  Columns out;
  const std::string message = message_of([&] { join_columns(std::vector<const Sample*>{&a, &b}, out); });
  EXPECT_NE(message.find("column reference_logp is missing from 1 of 2 samples"), std::string::npos) << message;
  EXPECT_NE(message.find("sample 1 does not"), std::string::npos) << message;
  b.columns.assign(columns::reference_logp, 1, -1);
  EXPECT_NE(message_of([&] {
              join_columns(std::vector<const Sample*>{&a, &b}, out);
            }).find("sample 1 has 1 entries of reference_logp for 2 tokens"),
            std::string::npos);
}

TEST(WriteSamples, HasEveryColumnThatIsThere) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "samples.jsonl";
  Sample sample = sample_of({1, 2});
  for (const Column column : all_columns())
    sample.columns.assign(column, column.size(1, 2), static_cast<float>(column.index()) + 0.5f);
  write_samples(path, std::vector<const Sample*>{&sample});
  read_jsonl(path, [&](const Json& row, int64_t) {
    for (const Column column : all_columns()) {
      const Json& given = row.at(column.name(), "row");
      const Json& first = column.info().per_sequence ? given : given.as_array().at(0);
      const Json& number = column.info().width > 1 ? first.as_array().at(1) : first;
      EXPECT_EQ(number.as_double(), static_cast<double>(column.index()) + 0.5) << column.name();
    }
    EXPECT_EQ(row.at(per_token.name()).as_array().size(), 2u);
  });
}

}  // namespace
}  // namespace hone
