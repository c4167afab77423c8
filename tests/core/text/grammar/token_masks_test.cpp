#include "core/text/grammar/token_masks.h"

#include <gtest/gtest.h>

#include "core/base/rng.h"
#include "core/base/stopwatch.h"
#include "tests/core/text/grammar/grammar_check.h"
#include "tests/core/text/grammar/schema_validator.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

// Single bytes, JSON's usual pieces, parts of characters, and random strings.
std::vector<std::string> small_vocabulary() {
  std::vector<std::string> out;
  for (int byte = 0; byte < 256; ++byte) out.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"{\"",      "\": ", "\":",   "\", \"", "\"}",  "\"},", "}}",   "[[",       "]]",
                           "],",       "[]",   "{}",    ", ",     "  ",   "\n",   "\n  ", "\n    ",   "true",
                           "tru",      "null", "false", "abc",    "ab",   "a\"",  "name", "\"name",   "\"name\": \"",
                           "12",       "0.5",  "-1",    "1e",     "\\n",  "\\u",  "00",   "\xE2\x82", "\x82\xAC",
                           "\xC3\xA9", "(((",  "))",    "a=b",    "\\\"", "\",",  "\"}]", "}]",       "]}"})
    out.emplace_back(text);
  Rng rng(7, 0, 0);
  const std::string letters = "{}[]\":,ab01 \\-.\n";
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (uint64_t n = 1 + rng.below(6); n > 0; --n) text += letters[rng.below(letters.size())];
    out.push_back(text);
  }
  out.emplace_back();       // a token without text
  out.emplace_back("abc");  // a second token with the same bytes
  return out;
}

const std::vector<StructuredOutput>& grammars() {
  static const std::vector<StructuredOutput> all = {
      {.json_object = true},
      json_of(R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": -5,
              "maximum": 120}, "tags": {"type": "array", "items": {"enum": ["a", "ab", "b\"c"]}, "maxItems": 3}},
              "required": ["name", "age"], "additionalProperties": {"type": ["number", "null"]}})"),
      json_of(
          R"({"$defs": {"n": {"type": "object", "properties": {"v": {"type": "string", "minLength": 1, "maxLength": 40},
              "l": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v", "l"]}}, "$ref": "#/$defs/n"})"),
      json_of(
          R"({"type": "array", "items": {"type": "string", "pattern": "^[ab0-9]*$"}, "minItems": 1, "maxItems": 60})"),
      regex_of("(a|ab|abc)*(1|12){2,30}"),
      {.choice = {"abc", "abcabc", "name", "true false"}},
      grammar_of("root ::= s\ns ::= \"(\" s \")\" s | \"a=b\" | [0-9]{3} | \"\""),
  };
  return all;
}

// The mask by its definition: a token is allowed if its bytes can be read.
std::vector<bool> brute_force(GrammarReader& reader, const std::string& text, const std::vector<std::string>& bytes) {
  std::vector<bool> out;
  for (const std::string& token : bytes)
    out.push_back(!token.empty() && reader.read(text + token).bytes == text.size() + token.size());
  return out;
}

bool allows(std::span<const uint32_t> mask, size_t token) { return (mask[token / 32] >> (token % 32) & 1) != 0; }

TEST(TokenMasks, EqualBruteForceAlongRandomWalks) {
  const std::vector<std::string> bytes = small_vocabulary();
  const TokenTrie trie(bytes);
  for (size_t g = 0; g < grammars().size(); ++g) {
    GrammarReader reader(grammars()[g], trie.longest_token());
    TokenMasks masks(Grammar::compile(grammar_source(grammars()[g]), trie.longest_token()), trie);
    for (uint64_t walk = 0; walk < 6; ++walk) {
      Rng rng(11, g, walk);
      std::string text;
      GrammarPlace place = masks.start();
      for (int step = 0; step < 60; ++step) {
        const std::span<const uint32_t> mask = masks.mask(place);
        const std::vector<bool> expected = brute_force(reader, text, bytes);
        std::vector<int32_t> allowed;
        for (size_t t = 0; t < bytes.size(); ++t) {
          ASSERT_EQ(allows(mask, t), expected[t])
              << "grammar " << g << " after '" << text << "', token '" << bytes[t] << "'";
          if (expected[t]) allowed.push_back(static_cast<int32_t>(t));
        }
        ASSERT_EQ(masks.can_end(place), reader.read(text).can_end) << text;
        ASSERT_EQ(masks.must_end(place), allowed.empty()) << text;
        if (allowed.empty()) break;
        const int32_t token = allowed[rng.below(allowed.size())];
        text += bytes[static_cast<size_t>(token)];
        place = masks.advance(place, token);
        ASSERT_FALSE(masks.dead(place));
      }
    }
  }
}

// Each prefix of an accepted text, however it is cut into tokens, allows the next token and no token that it must not.
TEST(TokenMasks, PrefixesOfAcceptedTextsAllowTheirNextToken) {
  const std::vector<std::string> bytes = small_vocabulary();
  const TokenTrie trie(bytes);
  TokenMasks masks(Grammar::compile(grammar_source(grammars()[1]), trie.longest_token()), trie);
  const std::string text = "{\"name\": \"a\\\"\xE2\x82\xAC\", \"age\": 12, \"tags\": [\"b\\\"c\", \"ab\"], \"x\": 0.5}";
  for (uint64_t cut = 0; cut < 50; ++cut) {
    Rng rng(3, cut, 0);
    GrammarPlace place = masks.start();
    for (size_t at = 0; at < text.size();) {
      std::vector<int32_t> next;
      for (size_t t = 0; t < bytes.size(); ++t)
        if (!bytes[t].empty() && text.compare(at, bytes[t].size(), bytes[t]) == 0)
          next.push_back(static_cast<int32_t>(t));
      const int32_t token = next[rng.below(next.size())];
      ASSERT_TRUE(allows(masks.mask(place), static_cast<size_t>(token))) << text.substr(0, at);
      place = masks.advance(place, token);
      at += bytes[static_cast<size_t>(token)].size();
    }
    EXPECT_TRUE(masks.can_end(place));
    EXPECT_TRUE(masks.must_end(place));
  }
}

TEST(TokenMasks, RefusedTokensLeadNowhere) {
  const TokenTrie trie(small_vocabulary());
  TokenMasks masks(Grammar::compile(grammar_source({.choice = {"ab"}}), trie.longest_token()), trie);
  EXPECT_TRUE(masks.dead(masks.advance(masks.start(), 'x')));
  EXPECT_TRUE(masks.dead(masks.advance(masks.start(), -1)));
  EXPECT_TRUE(masks.dead(masks.advance(masks.start(), 1 << 20)));
  EXPECT_TRUE(masks.dead(masks.advance(masks.start(), trie.vocab_size() - 2)));  // the token without text
  EXPECT_FALSE(masks.dead(masks.advance(masks.start(), 'a')));
}

// Long bounded repetitions share masks, which are the same as without sharing.
TEST(TokenMasks, BoundedRepetitionsShareMasks) {
  const std::vector<std::string> bytes = small_vocabulary();
  const TokenTrie trie(bytes);
  const StructuredOutput bounded = json_of(R"({"type": "string", "minLength": 100, "maxLength": 200})");
  GrammarReader reader(bounded, trie.longest_token());
  TokenMasks masks(Grammar::compile(grammar_source(bounded), trie.longest_token()), trie);
  GrammarPlace place = masks.advance(masks.start(), '"');
  std::string text = "\"";
  for (int i = 0; i < 201; ++i) {
    const std::vector<bool> expected = brute_force(reader, text, bytes);
    const std::span<const uint32_t> mask = masks.mask(place);
    for (size_t t = 0; t < bytes.size(); ++t) ASSERT_EQ(allows(mask, t), expected[t]) << i << " '" << bytes[t] << "'";
    const char next = i == 200 ? '"' : 'a';
    place = masks.advance(place, next);
    text += next;
  }
  EXPECT_TRUE(masks.must_end(place));
}

TEST(TokenMasks, DeepDocumentsStayExact) {
  const std::vector<std::string> bytes = small_vocabulary();
  const TokenTrie trie(bytes);
  const StructuredOutput array = json_of(R"({"type": "array"})");
  GrammarReader reader(array, trie.longest_token());
  TokenMasks masks(Grammar::compile(grammar_source(array), trie.longest_token()), trie);
  GrammarPlace place = masks.start();
  std::string text;
  for (int depth = 0; depth < 300 && allows(masks.mask(place), '['); ++depth) {
    place = masks.advance(place, '[');
    text += '[';
    if (depth < 230) continue;
    const std::vector<bool> expected = brute_force(reader, text, bytes);
    const std::span<const uint32_t> mask = masks.mask(place);
    for (size_t t = 0; t < bytes.size(); ++t)
      ASSERT_EQ(allows(mask, t), expected[t]) << depth << " '" << bytes[t] << "'";
  }
  EXPECT_GT(text.size(), 240u);
  EXPECT_LT(text.size(), 256u);
  EXPECT_NO_THROW(parse_json(text + std::string(text.size(), ']'), "text"));
}

// The tables of a hostile grammar are bounded: the computation ends with an error, or they are cleared.
TEST(TokenMasks, HostileGrammarsAreBounded) {
  std::vector<std::string> bytes;
  Rng rng(5, 0, 0);
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (int n = 0; n < 16; ++n) text += rng.below(2) ? 'a' : 'b';
    bytes.push_back(text);
  }
  const TokenTrie trie(bytes);
  TokenMasks masks(Grammar::compile(grammar_source(regex_of("(a|b)*a(a|b){2000}")), trie.longest_token()), trie);
  const Stopwatch clock;
  try {
    GrammarPlace place = masks.start();
    for (int i = 0; i < 8; ++i) {
      masks.clear_if_large();
      if (place.epoch != masks.epoch()) place = masks.start();
      masks.mask(place);
      place = masks.advance(place, i);
    }
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("too ambiguous"), std::string::npos) << error.what();
  }
  EXPECT_LT(clock.seconds(), 30);
}

// Nested texts have ever new stacks, so the tables are cleared. Masks are then those of tables that never were.
TEST(TokenMasks, ClearingKeepsTheMeaning) {
  const std::vector<std::string> bytes = small_vocabulary();
  const TokenTrie trie(bytes);
  const StructuredOutput nested =
      grammar_of("root ::= (\"a\" root \"]\" | \"b\" root \"}\" | \"0\" root \"1\")? [a-b]");
  const auto compiled = [&] { return Grammar::compile(grammar_source(nested), trie.longest_token()); };
  TokenMasks masks(compiled(), trie);
  const uint64_t before = masks.epoch();
  Rng rng(11, 0, 0);
  std::vector<int32_t> ids;
  int checked = 0;
  for (int text = 0; text < 5000 && checked < 3; ++text) {
    GrammarPlace place = masks.start();
    ids.clear();
    for (int i = 0; i < 200; ++i) {
      const uint64_t epoch = masks.epoch();
      masks.clear_if_large();
      if (masks.epoch() != epoch) {
        place = masks.start();
        for (const int32_t id : ids) place = masks.advance(place, id);
        TokenMasks fresh(compiled(), trie);
        GrammarPlace same = fresh.start();
        for (const int32_t id : ids) same = fresh.advance(same, id);
        ASSERT_TRUE(std::ranges::equal(masks.mask(place), fresh.mask(same)));
        ++checked;
      }
      const std::span<const uint32_t> mask = masks.mask(place);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < trie.vocab_size(); ++id)
        if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
      if (allowed.empty()) break;
      ids.push_back(allowed[rng.below(allowed.size())]);
      place = masks.advance(place, ids.back());
    }
  }
  EXPECT_EQ(checked, 3);
  EXPECT_EQ(masks.epoch(), before + 3);
}

std::string text_of(const TokenTrie& trie, const std::vector<int32_t>& tokens) {
  std::string out;
  for (const int32_t token : tokens) out += trie.token_bytes(token);
  return out;
}

// A random document: tokens under the mask, with a preference for the end so that walks do end.
std::vector<int32_t> random_walk(TokenMasks& masks, const TokenTrie& trie, Rng rng, size_t max_tokens) {
  std::vector<int32_t> out;
  GrammarPlace place = masks.start();
  while (!masks.must_end(place) && out.size() < max_tokens) {
    if (masks.can_end(place) && rng.below(2) == 0) return out;
    const std::span<const uint32_t> mask = masks.mask(place);
    std::vector<int32_t> allowed, closing;
    for (int32_t t = 0; t < trie.vocab_size(); ++t) {
      if (!allows(mask, static_cast<size_t>(t))) continue;
      allowed.push_back(t);
      const std::string& text = trie.token_bytes(t);
      if (text.find_first_of("\"}]") != std::string::npos && text.find_first_of("[{") == std::string::npos)
        closing.push_back(t);
    }
    const std::vector<int32_t>& from = out.size() > max_tokens / 3 && !closing.empty() ? closing : allowed;
    if (from.empty()) break;
    out.push_back(from[rng.below(from.size())]);
    place = masks.advance(place, out.back());
  }
  return masks.can_end(place) ? out : std::vector<int32_t>{};
}

// Random walks over real vocabularies give valid documents.
TEST(TokenMasks, RandomWalksAreValidDocuments) {
  const std::optional<std::filesystem::path> shared = shared_folder();
  std::vector<TokenTrie> tries;
  tries.emplace_back(small_vocabulary());
  for (const char* name : {"gpt2", "qwen2", "llama2"})
    if (shared && Tokenizer::is_in(*shared / "data/tokenizers" / name))
      tries.push_back(TokenTrie::of(Tokenizer::load(*shared / "data/tokenizers" / name)));
  int complete = 0;
  for (const TokenTrie& trie : tries)
    for (const size_t g : {1, 2}) {
      const Json schema = parse_json(grammars()[g].json, "schema");
      TokenMasks masks(Grammar::compile(grammar_source(grammars()[g]), trie.longest_token()), trie);
      for (uint64_t walk = 0; walk < (trie.vocab_size() < 1000 ? 8u : 2u); ++walk) {
        const std::vector<int32_t> tokens = random_walk(masks, trie, Rng(17, g, walk), 100);
        if (tokens.empty()) continue;
        const std::string text = text_of(trie, tokens);
        Json document;
        ASSERT_NO_THROW(document = parse_json(text, "document")) << text;
        EXPECT_TRUE(is_valid(document, schema, schema)) << text;
        ++complete;
      }
    }
  EXPECT_GE(complete, 8);
  if (tries.size() == 1) GTEST_SKIP() << "no shared material: only the small vocabulary ran";
}

// Prints the cost of a mask on a vocabulary of 150,000 tokens.
TEST(TokenMasks, CostOfAMask) {
  HONE_SHARED_OR_SKIP(folder, "data/tokenizers/qwen2");
  const TokenTrie trie = TokenTrie::of(Tokenizer::load(folder));
  TokenMasks masks(Grammar::compile(grammar_source(grammars()[1]), trie.longest_token()), trie);
  std::vector<int32_t> longest;
  for (uint64_t walk = 0; walk < 3; ++walk) {
    const std::vector<int32_t> tokens = random_walk(masks, trie, Rng(23, 0, walk), 150);
    if (tokens.size() > longest.size()) longest = tokens;
  }
  ASSERT_FALSE(longest.empty());
  for (const bool warm : {false, true}) {
    TokenMasks fresh(Grammar::compile(grammar_source(grammars()[1]), trie.longest_token()), trie);
    TokenMasks& used = warm ? masks : fresh;
    const Stopwatch clock;
    GrammarPlace place = used.start();
    for (const int32_t token : longest) {
      used.mask(place);
      place = used.advance(place, token);
    }
    const double micros = clock.seconds() * 1e6 / static_cast<double>(longest.size());
    std::printf("%s tables: %.1f us a token over %zu tokens\n", warm ? "warm" : "fresh", micros, longest.size());
    EXPECT_LT(micros, warm ? 1000 : 100'000);
  }
}

}  // namespace
}  // namespace hone::test
