// Planted overlaps are found, and nothing else.
#include "eval/contamination.h"

#include <gtest/gtest.h>

namespace hone::test {
namespace {

std::vector<uint64_t> words(std::string_view text) {
  std::vector<uint64_t> out;
  each_word(text, [&](uint64_t word) { out.push_back(word); });
  return out;
}

// "w0 w1 ... "
std::string numbered(int begin, int end, const std::string& word = "w") {
  std::string out;
  for (int i = begin; i < end; ++i) out += word + std::to_string(i) + " ";
  return out;
}

TEST(Words, AreTheSameWhateverTheirCaseAndPunctuation) {
  EXPECT_EQ(words("Don't stop: \"NOW\"!"), words("dont  stop\nnow"));
  EXPECT_EQ(words("  ... -- ").size(), 0u);
  EXPECT_NE(words("a b"), words("ab"));
  EXPECT_EQ(words("na\xc3\xafve caf\xc3\xa9").size(), 2u);
  EXPECT_EQ(words("\xff\xfe x").size(), 1u);
}

TEST(Contamination, AnNGramOfTheTrainingSetFlagsTheRow) {
  Contamination found(13);
  found.add_row(JsonObject{{"question", numbered(0, 20)}, {"answer", "7"}}, "task:1");
  found.add_row(JsonObject{{"question", numbered(100, 120)}}, "task:2");
  found.add_row(JsonObject{{"question", "too short to tell"}}, "task:3");
  found.begin_document("train:1");
  found.add_text("something else. " + numbered(5, 18) + "and then no more");  // thirteen words
  found.begin_document("train:2");
  found.add_text(numbered(100, 112));  // twelve: one too few
  const auto& rows = found.rows();
  EXPECT_EQ(rows[0].found_in, "train:1");
  EXPECT_EQ(rows[0].num_covered, 13);
  EXPECT_EQ(rows[0].num_words, 20);
  EXPECT_EQ(rows[1].found_in, "");
  EXPECT_EQ(rows[2].num_words, 0);
  const Json summary = found.summary();
  EXPECT_EQ(summary.at("rows").as_int(), 3);
  EXPECT_EQ(summary.at("checked").as_int(), 2);
  EXPECT_EQ(summary.at("flagged").as_int(), 1);
  EXPECT_DOUBLE_EQ(summary.at("flagged_share").as_double(), 0.5);
  EXPECT_DOUBLE_EQ(summary.at("word_share").as_double(), 13.0 / 40);
  EXPECT_EQ(summary.at("mostly_covered").as_int(), 0);
  EXPECT_EQ(summary.at("documents").as_int(), 2);
}

TEST(Contamination, SpansPiecesOfADocumentButNotDocumentsNorMembers) {
  Contamination pieces(13), parted(13), members(13);
  pieces.add_row(numbered(0, 15), "r"), parted.add_row(numbered(0, 15), "r");
  members.add_row(JsonObject{{"a", numbered(0, 7)}, {"b", numbered(7, 14)}}, "r");
  for (Contamination* one : {&pieces, &members}) {
    one->begin_document("d");
    one->add_text(numbered(0, 7));
    one->add_text(numbered(7, 15));
  }
  parted.begin_document("d");
  parted.add_text(numbered(0, 7));
  parted.begin_document("e");
  parted.add_text(numbered(7, 15));
  EXPECT_EQ(pieces.rows()[0].num_covered, 15);
  EXPECT_EQ(pieces.summary().at("mostly_covered").as_int(), 1);
  EXPECT_EQ(parted.rows()[0].num_covered, 0);
  EXPECT_EQ(members.rows()[0].num_words, 0);
}

TEST(Contamination, RowsThatShareTextAreAllFlaggedAndTheFirstDocumentIsNamed) {
  Contamination found(3);
  found.add_row("alpha beta gamma delta", "one");
  found.add_row(JsonArray{"x", "so alpha beta gamma"}, "two");
  for (const char* document : {"d1", "d2"}) {
    found.begin_document(document);
    found.add_text("Alpha, beta; GAMMA. Alpha beta gamma delta");
  }
  EXPECT_EQ(found.rows()[0].found_in, "d1");
  EXPECT_EQ(found.rows()[0].num_covered, 4);
  EXPECT_EQ(found.rows()[1].found_in, "d1");
  EXPECT_EQ(found.rows()[1].num_covered, 3);
  EXPECT_EQ(found.summary().at("words").as_int(), 14);
}

TEST(Contamination, WordsAreComparedInOrder) {
  Contamination found(4);
  found.add_row("one two three four", "r");
  found.begin_document("d");
  found.add_text("four three two one one three two four two one three four");
  EXPECT_EQ(found.rows()[0].num_covered, 0);
  EXPECT_THROW(Contamination(0), Error);
}

}  // namespace
}  // namespace hone::test
