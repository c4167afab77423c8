// The documents hold: commands that they show run, links and paths lead to files, recipes have a page, lines are short.
//
// A fenced block that begins with ```sh run is a script. The blocks of a page run in their order, in one temporary
// folder that shows the source tree's configs/, examples/ and rewards/. Comment lines of a block steer it:
//   # with: stage.sft.steps=3    overrides for each `hone run` of the block, so that the test is fast
//   # needs: curl                the page ends here, visibly, without this command, or without a gpu
//   # expect: TEXT               the block's output holds TEXT
// A block that names HONE_DATA needs the shared material.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file.h"
#include "tests/docs_pages.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// Pages that quote the words that a page must not use.
constexpr std::array<std::string_view, 2> kQuotesWords{"docs/dev/glossary.md", "docs/dev/style.md"};

size_t code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// ---- Blocks

struct Block {
  int line = 0;
  std::string script, overrides;
  std::vector<std::string> expected, needed;
};

std::vector<Block> blocks_of(const fs::path& page) {
  std::vector<Block> out;
  bool runs = false;
  for (const PageLine& line : lines_of(page)) {
    if (line.fenced && line.text.starts_with("```")) {
      runs = line.text == "```sh run";
      if (runs) out.emplace_back().line = line.number;
    } else if (runs) {
      Block& block = out.back();
      block.script += line.text + "\n";
      const auto steers = [&](std::string_view word) { return line.text.starts_with(word); };
      if (steers("# with: ")) block.overrides += line.text.substr(8) + " ";
      if (steers("# needs: ")) block.needed.push_back(line.text.substr(9));
      if (steers("# expect: ")) block.expected.push_back(line.text.substr(10));
    }
  }
  return out;
}

// The folder in which a page's blocks run: what readers of the source tree see, and `hone` in bin/.
void fill_folder(const fs::path& folder) {
  for (const char* name : {"configs", "examples", "rewards"})
    fs::create_directory_symlink(source_folder() / name, folder / name);
  fs::create_directory(folder / "bin");
  std::ofstream(folder / "bin" / "hone") << "#!/bin/sh\nif [ \"$1\" = run ]; then\n  exec " << hone_binary().string()
                                         << " \"$@\" $DOCS_WITH\nfi\nexec " << hone_binary().string() << " \"$@\"\n";
  fs::permissions(folder / "bin" / "hone", fs::perms::owner_all);
}

// The folder that recipes call HONE_DATA; empty if this machine has none.
fs::path data_folder() {
  const auto shared = shared_folder();
  return shared && fs::is_directory(*shared / "data") ? *shared / "data" : fs::path();
}

// What a block needs and this machine lacks; empty if nothing.
std::string lacks(const Block& block) {
  if (block.script.find("HONE_DATA") != std::string::npos && data_folder().empty()) return "shared material";
  for (const std::string& name : block.needed) {
    const bool there = name == "gpu" ? fs::exists("/dev/nvidia0")
                                     : std::system(("command -v '" + name + "' >/dev/null 2>&1").c_str()) == 0;
    if (!there) return name;
  }
  return "";
}

// Runs a block in its own process group, which ends with it; gives its exit status and what it wrote.
std::pair<int, std::string> run_block(const Block& block, const fs::path& folder) {
  std::ofstream(folder / "block.sh") << "set -eu -o pipefail\n" << block.script;
  std::string command = "cd '" + folder.string() + "' && PATH=\"$PWD/bin:$PATH\" DOCS_WITH='" + block.overrides + "' ";
  if (!data_folder().empty()) command += "HONE_DATA='" + data_folder().string() + "' ";
  command += "timeout --kill-after=5 120 bash block.sh >block.out 2>&1";
  const int status = std::system(command.c_str());
  return {status, read_file(folder / "block.out")};
}

class DocsPage : public ::testing::TestWithParam<fs::path> {};

TEST_P(DocsPage, CommandsThatItShowsRun) {
  const TemporaryFolder folder;
  fill_folder(folder.path());
  for (const Block& block : blocks_of(GetParam())) {
    const std::string where = shown(GetParam()) + ":" + std::to_string(block.line);
    if (const std::string missing = lacks(block); !missing.empty()) GTEST_SKIP() << where << ": needs " << missing;
    const auto [status, output] = run_block(block, folder.path());
    ASSERT_EQ(status, 0) << where << "\n" << output;
    for (const std::string& text : block.expected)
      EXPECT_NE(output.find(text), std::string::npos) << where << ": expected " << text << " in\n" << output;
  }
}

std::vector<fs::path> pages_with_blocks() {
  std::vector<fs::path> out = pages();
  std::erase_if(out, [](const fs::path& page) { return blocks_of(page).empty(); });
  return out;
}

INSTANTIATE_TEST_SUITE_P(Docs, DocsPage, ::testing::ValuesIn(pages_with_blocks()), [](const auto& page) {
  std::string name = shown(page.param);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

// A block of commands that no test runs says why, in a line near it.
TEST(Docs, BlocksThatDoNotRunSayWhy) {
  static const std::regex command(R"((^|\n|\| |&& )(hone|\./dev|curl|lm_eval|cc|docker) )");
  constexpr size_t before = 3, after = 16;  // lines near a block
  for (const fs::path& page : pages()) {
    const std::vector<PageLine> lines = lines_of(page);
    for (size_t begin = 0; begin < lines.size(); ++begin) {
      if (!lines[begin].fence) continue;
      size_t end = begin + 1;
      std::string text;
      for (; end < lines.size() && !lines[end].fence; ++end) text += "\n" + lines[end].text;
      const bool commands =
          (lines[begin].language.empty() || lines[begin].language == "sh") && std::regex_search(text, command);
      std::string near;
      for (size_t i = begin - std::min(begin, before); i < std::min(end + after, lines.size()); ++i)
        near += lines[i].text + " ";
      if (commands) {
        EXPECT_NE(near.find("not run"), std::string::npos) << shown(page) << ":" << lines[begin].number;
      }
      begin = end;
    }
  }
}

// ---- Links and paths

// GitHub's name of a heading: lower case, without punctuation, dashes for spaces.
std::set<std::string> anchors_of(const fs::path& page) {
  std::set<std::string> out;
  for (const PageLine& line : lines_of(page)) {
    if (line.fenced || !line.text.starts_with("#")) continue;
    std::string name;
    for (const char c : line.text.substr(std::min(line.text.find(' '), line.text.size() - 1) + 1)) {
      if (c == ' ') name += '-';
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || (c & 0x80))
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    out.insert(name);
  }
  return out;
}

// The relative links of a page outside fences.
std::vector<std::string> links_of(const fs::path& page) {
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  std::vector<std::string> out;
  for (const PageLine& line : lines_of(page)) {
    if (line.fenced) continue;
    for (const std::string& target : matches(line.text, link))
      if (target.find("://") == std::string::npos && !target.starts_with("mailto:")) out.push_back(target);
  }
  return out;
}

TEST(Docs, LinksLeadSomewhere) {
  for (const fs::path& page : pages()) {
    for (const std::string& link : links_of(page)) {
      const size_t hash = link.find('#');
      const std::string file = link.substr(0, hash);
      const fs::path target = file.empty() ? page : (page.parent_path() / file).lexically_normal();
      EXPECT_TRUE(fs::exists(target)) << shown(page) << ": " << link;
      if (hash == std::string::npos || target.extension() != ".md" || !fs::exists(target)) continue;
      EXPECT_TRUE(anchors_of(target).contains(link.substr(hash + 1))) << shown(page) << ": no heading for " << link;
    }
  }
}

// `folder/file.ext` and `folder/` in the text are paths from the root. A stem of x, or one that begins with my_ or is
// in capitals, stands for a file that a reader adds.
TEST(Docs, PathsAreThoseOfTheTree) {
  static const std::regex quoted("`([^`]+)`");
  static const std::regex path_form(R"(([a-z]+/[A-Za-z0-9_./-]*(/|\.(h|cpp|cu|cuh|c|py|toml|md|txt|sh|html|jsonl))))");
  for (const fs::path& page : pages()) {
    if (shown(page).starts_with(kGeneratedPages)) continue;
    for (const PageLine& line : lines_of(page)) {
      if (line.fenced) continue;
      for (const std::string& text : matches(line.text, quoted)) {
        std::smatch match;
        if (!std::regex_match(text, match, path_form)) continue;
        const fs::path path = text;
        const std::string top = path.begin()->string(), stem = path.stem().string();
        const bool ours = top != "build" && top != "runs" && fs::is_directory(source_folder() / top);
        const bool stands_for =
            stem == "x" || stem.starts_with("my_") || text.find("/x/") != std::string::npos ||
            (!stem.empty() && std::isupper(static_cast<unsigned char>(stem[0])) && stem != "README");
        if (!ours || stands_for) continue;
        EXPECT_TRUE(fs::exists(source_folder() / path)) << shown(page) << ":" << line.number << ": " << text;
      }
    }
  }
}

// ---- What the pages hold together

TEST(Docs, EveryRecipeHasAPage) {
  std::string text;
  for (const fs::path& page : pages()) text += read_file(page);
  for (const auto& entry : fs::recursive_directory_iterator(source_folder() / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    EXPECT_NE(text.find(shown(entry.path())), std::string::npos) << shown(entry.path()) << " is named by no page";
  }
}

TEST(Docs, EveryPageIsInAnIndex) {
  std::set<std::string> linked{"README.md", "docs/README.md"};
  for (const fs::path& page : pages()) {
    if (page.filename() != "README.md") continue;
    for (const std::string& link : links_of(page)) {
      const std::string file = link.substr(0, link.find('#'));
      if (!file.empty()) linked.insert(shown((page.parent_path() / file).lexically_normal()));
    }
  }
  for (const fs::path& page : pages())
    EXPECT_TRUE(linked.contains(shown(page))) << shown(page) << ": link it from docs/README.md";
}

TEST(Docs, LinesAreShort) {
  for (const fs::path& page : pages()) {
    if (shown(page).starts_with(kGeneratedPages)) continue;
    for (const PageLine& line : lines_of(page)) {
      const bool counts = !line.text.starts_with("|") && line.text.find("](") == std::string::npos &&
                          line.text.find("://") == std::string::npos;
      if (!counts) continue;
      EXPECT_LE(code_points(line.text), 120U) << shown(page) << ":" << line.number;
    }
  }
}

// The README fits one or two screens, and has the two commands to begin with.
TEST(Docs, TheReadmeIsShort) {
  const fs::path readme = source_folder() / "README.md";
  EXPECT_LE(lines_of(readme).size(), 90U);
  const std::string text = read_file(readme);
  for (const char* command : {"./dev quickstart", "./dev test"})
    EXPECT_NE(text.find(command), std::string::npos) << command;
}

// ---- Words

// Words that leave a reader to guess who acts (docs/dev/glossary.md).
std::vector<std::string> words_in(const std::string& text) {
  static const std::regex words(R"(\b(so many|what becomes of|the like|takes turns|gives back|hands over|under way)\b)",
                                std::regex::icase);
  return matches(text, words);
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

TEST(Docs, WordsSayWhoActs) {
  for (const fs::path& page : pages()) {
    if (shown(page).starts_with(kGeneratedPages) || std::ranges::find(kQuotesWords, shown(page)) != kQuotesWords.end())
      continue;
    std::string text;
    for (const PageLine& line : lines_of(page))
      if (!line.fenced) text += line.text + " ";
    EXPECT_EQ(joined(words_in(text)), "") << shown(page);
  }
}

TEST(Docs, CommentsSayWhoActs) {
  for (const auto& top : fs::directory_iterator(source_folder())) {
    const std::string folder = shown(top.path());
    if (!top.is_directory() || folder.starts_with(".") || folder == "build") continue;
    for (const auto& entry : fs::recursive_directory_iterator(top.path())) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
      std::ifstream file(entry.path());
      std::string text;  // comments, line by line, so that a word may be cut by a line's end
      for (std::string line; std::getline(file, line);) {
        const size_t comment = line.find("//");
        text += comment == std::string::npos ? ". " : line.substr(comment + 2) + " ";
      }
      text = std::regex_replace(text, std::regex(" +"), " ");
      EXPECT_EQ(joined(words_in(text)), "") << shown(entry.path());
    }
  }
}

}  // namespace
}  // namespace hone::test
