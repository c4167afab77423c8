#include "run/watch/log_piece.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/io/file.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

class LogPieceTest : public ::testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }
  void append(const std::string& text) const { std::ofstream(path, std::ios::binary | std::ios::app) << text; }
  TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
};

TEST_F(LogPieceTest, GivesWholeLinesAndContinuesBehindThem) {
  EXPECT_EQ(read_log_piece(path, {}).lines, "");  // the file is not there yet
  write("one\ntwo\nthr");
  LogPiece piece = read_log_piece(path, {});
  EXPECT_EQ(piece.lines, "one\ntwo\n");
  EXPECT_FALSE(piece.reset);
  EXPECT_EQ(piece.size, 11);
  append("ee\n");
  piece = read_log_piece(path, piece.next);
  EXPECT_EQ(piece.lines, "three\n");
  piece = read_log_piece(path, piece.next);
  EXPECT_EQ(piece.lines, "");
  EXPECT_FALSE(piece.reset);
}

TEST_F(LogPieceTest, AFileThatWasCutOrRewrittenIsReadFromItsStart) {
  write("step 1\nstep 2\nstep 3\n");
  const LogPlace end = read_log_piece(path, {}).next;
  write("step 1\n");
  EXPECT_TRUE(read_log_piece(path, end).reset);
  write("step 1\nstep B\nstep C\nstep D\n");  // longer than before, with other rows
  const LogPiece piece = read_log_piece(path, end);
  EXPECT_TRUE(piece.reset);
  EXPECT_EQ(piece.lines, "step 1\nstep B\nstep C\nstep D\n");
  EXPECT_TRUE(read_log_piece(path, {.offset = -5, .digest = "x"}).reset);
  std::filesystem::remove(path);
  EXPECT_TRUE(read_log_piece(path, end).reset);
}

TEST_F(LogPieceTest, LongFilesComeInPiecesAndNothingIsLost) {
  std::string text;
  for (int i = 0; i < 40000; ++i) text += concat("{\"step\": ", i, ", \"x\": \"", std::string(60, 'y'), "\"}\n");
  write(text);
  std::string all;
  LogPlace at;
  int pieces = 0;
  for (LogPiece piece; at.offset < static_cast<int64_t>(text.size()); ++pieces) {
    piece = read_log_piece(path, at);
    EXPECT_LE(piece.lines.size(), size_t{1} << 20);
    ASSERT_FALSE(piece.lines.empty());
    all += piece.lines;
    at = piece.next;
  }
  EXPECT_EQ(all, text);
  EXPECT_GT(pieces, 2);
}

TEST_F(LogPieceTest, ALongLineComesWholeAndAnEndlessOneIsSkipped) {
  const std::string line(size_t{3} << 20, 'a');
  write(line + "\nnext\n");
  const LogPiece piece = read_log_piece(path, {});
  EXPECT_EQ(piece.lines, line + "\n");
  EXPECT_EQ(read_log_piece(path, piece.next).lines, "next\n");
  write(std::string(size_t{17} << 20, 'a') + "\nnext\n");
  std::string all;
  LogPlace at;
  for (int i = 0; i < 5; ++i) {
    const LogPiece one = read_log_piece(path, at);
    all += one.lines;
    at = one.next;
  }
  EXPECT_TRUE(all.ends_with("next\n"));
}

TEST_F(LogPieceTest, ThePlaceNearTheEndIsTheStartOfALine) {
  write("first\nsecond\nthird\n");
  EXPECT_EQ(read_log_piece(path, place_near_end(path, 9)).lines, "third\n");
  EXPECT_EQ(read_log_piece(path, place_near_end(path, 1000)).lines, "first\nsecond\nthird\n");
  EXPECT_EQ(place_near_end(folder.path() / "none", 10).offset, 0);
}

}  // namespace
}  // namespace hone::test
