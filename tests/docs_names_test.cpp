// Names in the pages exist: recipe keys, metrics, commands with their options, and names in code font.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file.h"
#include "tests/docs_pages.h"
#include "tests/support/process.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// Names of other programs that pages compare hone with, and of Python in examples.
const std::set<std::string, std::less<>> kForeign{
    // TRL, transformers, PEFT
    "AutoModelForSequenceClassification", "cpo_alpha", "global_step", "policy/clipfrac_avg", "policy/entropy_avg",
    "trainer_state",
    // verl, AReaL, NeMo RL, OpenRLHF
    "actor/entropy", "entropy_coeff", "gen_batch_size", "loss_agg_mode", "max_head_offpolicyness",
    "max_trajectory_age_steps", "norm_adv_by_std_in_grpo", "--remote_rm_url", "rollout_is", "staleness_threshold",
    // lm-evaluation-harness, OpenAI's client
    "add_bos_token", "api_key", "AsyncOpenAI", "invalid",
    // Variables of published chat templates
    "date_string", "enable_thinking",
    // CMake, C++
    "CMAKE_CUDA20_STANDARD_COMPILE_OPTION", "CMAKE_CUDA_ARCHITECTURES", "std::source_location",
    // Patterns of names in docs/dev/style.md, and words that stand for any name
    "CamelCase", "ClusterPlan", "max_x", "num_x", "snake_case", "trailing_", "x_index", "eval_NAME", "key"};

// Text in code font of a line outside of fences.
std::vector<std::string> code_spans(const std::string& line) {
  static const std::regex span("`([^`]+)`");
  return matches(line, span);
}

bool has_prose(const fs::path& page) { return !shown(page).starts_with(kGeneratedPages); }

std::string place(const fs::path& page, const PageLine& line) {
  return shown(page) + ":" + std::to_string(line.number) + ": ";
}

// ---- Recipe keys

// The keys of the generated reference, each by its last part: "rollout.speculative.method" as "method".
const std::set<std::string>& recipe_keys() {
  static const std::set<std::string> keys = [] {
    static const std::regex row(R"(^\| `([a-z0-9_.\[\]]+)` \|)");
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(source_folder() / "docs" / "reference" / "recipes"))
      for (const PageLine& line : lines_of(entry.path()))
        for (const std::string& key : matches(line.text, row)) out.insert(key.substr(key.rfind('.') + 1));
    return out;
  }();
  return keys;
}

// The last part of each key that TOML sets, and of each table that it opens; its texts and comments are left out.
std::vector<std::string> keys_set_by(const std::string& toml) {
  static const std::regex text(R"("(\\.|[^"\\])*"|'[^']*')"), comment("#.*$");
  static const std::regex key(R"(([A-Za-z0-9_]+)\s*=)"), table(R"(^\s*\[+(?:[a-z0-9_]+\.)*([a-z0-9_]+)\]+)");
  const std::string bare = std::regex_replace(std::regex_replace(toml, text, "0"), comment, "");
  std::vector<std::string> out = matches(bare, key);
  for (const std::string& name : matches(bare, table)) out.push_back(name);
  return out;
}

TEST(DocsNames, RecipeKeysExist) {
  static const std::regex setting(R"(^([a-z][a-z0-9_]*\.)*[a-z][a-z0-9_]* ?= ?[^=].*)");
  ASSERT_GT(recipe_keys().size(), 200U);
  for (const fs::path& page : pages()) {
    if (!has_prose(page)) continue;
    for (const PageLine& line : lines_of(page)) {
      std::vector<std::string> named;
      if (line.fenced && !line.fence && line.language == "toml") named = keys_set_by(line.text);
      if (!line.fenced)
        for (const std::string& span : code_spans(line.text))
          if (span.find(';') == std::string::npos && (std::regex_match(span, setting) || span.starts_with("["))) {
            const std::vector<std::string> keys = keys_set_by(span);
            named.insert(named.end(), keys.begin(), keys.end());
          }
      for (const std::string& key : named)
        EXPECT_TRUE(recipe_keys().contains(key) || kForeign.contains(key)) << place(page, line) << "no key " << key;
    }
  }
}

// ---- Metrics

// The names of docs/reference/metrics.md, which stand in the first column.
std::vector<std::string> metric_names() {
  static const std::regex row(R"(^\| `([A-Za-z0-9_/]+)` \|)");
  std::vector<std::string> out;
  for (const PageLine& line : lines_of(source_folder() / "docs" / "reference" / "metrics.md"))
    for (const std::string& name : matches(line.text, row)) out.push_back(name);
  return out;
}

bool is_placeholder(std::string_view part) {
  return part == "NAME" || part == "TASK" || part == "FIGURE" || part == "N" || part == "SOURCE";
}

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> out(1);
  for (const char c : name) {
    if (c == '/')
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

// A page may write `time/*` for several metrics, and any name for a placeholder.
bool means_metric(const std::string& name, const std::string& metric) {
  const std::vector<std::string> a = parts_of(name), b = parts_of(metric);
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == "*") return i > 0;
    if (i >= b.size() || (a[i] != b[i] && !is_placeholder(b[i]))) return false;
  }
  return a.size() == b.size();
}

TEST(DocsNames, MetricsAreInTheirReference) {
  static const std::regex form(R"([a-z_]+(/[A-Za-z_]+)*/([A-Za-z_]+|\*))");
  const std::vector<std::string> metrics = metric_names();
  std::set<std::string> groups;  // "clip_ratio"
  for (const std::string& metric : metrics)
    if (metric.find('/') != std::string::npos) groups.insert(parts_of(metric).front());
  ASSERT_GT(metrics.size(), 80U);
  for (const fs::path& page : pages()) {
    for (const PageLine& line : lines_of(page)) {
      if (line.fenced || !has_prose(page)) continue;
      for (const std::string& span : code_spans(line.text)) {
        const std::string group = parts_of(span).front();
        if (!std::regex_match(span, form) || !groups.contains(group) || fs::exists(source_folder() / span)) continue;
        const bool known =
            std::ranges::any_of(metrics, [&](const std::string& metric) { return means_metric(span, metric); });
        EXPECT_TRUE(known || kForeign.contains(span)) << place(page, line) << "no metric " << span;
      }
    }
  }
}

// Every text in quotation marks of the sources that make metrics.
const std::set<std::string>& metric_literals() {
  static const std::set<std::string> literals = [] {
    static const std::regex literal(R"re("([A-Za-z0-9_/]+)")re");
    std::set<std::string> out;
    for (const char* folder : {"model", "train", "posttrain", "pretrain", "rollout", "run", "eval", "data", "core/io"})
      for (const auto& entry : fs::recursive_directory_iterator(source_folder() / folder))
        if (entry.path().extension() == ".cpp" || entry.path().extension() == ".h")
          for (const std::string& text : matches(read_file(entry.path()), literal)) out.insert(text);
    return out;
  }();
  return literals;
}

// Whether the sources write the name: in one piece, or joined from two ("completions/mean_" and "length").
bool is_written(const std::string& name) {
  const std::set<std::string>& literals = metric_literals();
  if (literals.contains(name)) return true;
  for (size_t cut = 1; cut < name.size(); ++cut)
    if ((name[cut - 1] == '/' || name[cut - 1] == '_') && literals.contains(name.substr(0, cut)) &&
        literals.contains(name.substr(cut)))
      return true;
  return false;
}

TEST(DocsNames, MetricsOfTheReferenceAreWritten) {
  static const std::regex placeholder(R"(NAME|TASK|FIGURE|SOURCE|\bN\b)");
  for (const std::string& metric : metric_names()) {
    for (std::sregex_token_iterator i(metric.begin(), metric.end(), placeholder, -1), end; i != end; ++i) {
      const std::string piece = *i;  // "rewards/" and "/mean" of rewards/NAME/mean
      if (piece.empty() || piece == "/") continue;
      const bool written = is_written(piece) || (piece[0] == '/' && is_written(piece.substr(1))) ||
                           (piece.back() == '/' && is_written(piece.substr(0, piece.size() - 1)));
      EXPECT_TRUE(written) << metric << ": no source writes " << piece;
    }
  }
}

TEST(DocsNames, MetricsOfTheSourcesAreInTheReference) {
  static const std::regex literal(R"re("([a-z_]+/[a-z_/]*)")re");
  const std::string reference = read_file(source_folder() / "docs" / "reference" / "metrics.md");
  for (const char* folder : {"train", "posttrain", "rollout"})
    for (const auto& entry : fs::recursive_directory_iterator(source_folder() / folder)) {
      if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
      for (const std::string& name : matches(read_file(entry.path()), literal))
        EXPECT_NE(reference.find("| `" + name), std::string::npos) << shown(entry.path()) << ": " << name;
    }
}

// ---- Commands and options

struct CommandHelp {
  std::set<std::string> options;  // "--limit"
  std::set<std::string> choices;  // of the first word after it; empty if any word may stand there
};

std::set<std::string> options_in(const std::string& text) {
  static const std::regex option(R"((?:^|[\s,(\[`])(--[a-z][a-z0-9_-]*))");
  const std::vector<std::string> found = matches(text, option);
  return {found.begin(), found.end()};
}

const std::map<std::string, CommandHelp>& commands_of_hone() {
  static const std::map<std::string, CommandHelp> commands = [] {
    static const std::regex row(R"(\n  ([a-z]+(?:-[a-z]+)*) +[a-z])"), choices(R"(\n  \w+ TEXT:\{([^}]*)\})");
    const std::string help = run_hone({"--help"}).out;
    std::map<std::string, CommandHelp> out;
    for (const std::string& name : matches(help.substr(help.find("Subcommands:")), row)) {
      const std::string own = run_hone({name, "--help"}).out;
      CommandHelp& command = out[name];
      command.options = options_in(own);
      for (const std::string& list : matches(own, choices))
        for (const std::string& choice : matches(list, std::regex("([a-z0-9-]+)"))) command.choices.insert(choice);
    }
    return out;
  }();
  return commands;
}

// Checks each `hone COMMAND ...` of a text; an option counts up to the end of its command.
void check_commands(const std::string& text, const std::string& where) {
  static const std::regex call(R"((?:^|[\s;&|(])hone ([a-z]+(?:-[a-z]+)*)((?:[^;&|#\n]|\\\n)*))");
  for (std::sregex_iterator i(text.begin(), text.end(), call), end; i != end; ++i) {
    const std::string name = (*i)[1], rest = (*i)[2];
    const auto command = commands_of_hone().find(name);
    EXPECT_TRUE(command != commands_of_hone().end()) << where << "no command hone " << name;
    if (command == commands_of_hone().end()) continue;
    for (const std::string& option : options_in(rest))
      EXPECT_TRUE(command->second.options.contains(option)) << where << "hone " << name << " has no " << option;
    std::smatch word;
    if (!command->second.choices.empty() && std::regex_search(rest, word, std::regex("^ ([a-z][a-z0-9-]*)"))) {
      EXPECT_TRUE(command->second.choices.contains(word[1]))
          << where << "hone " << name << " does not know " << word[1];
    }
  }
}

// Blocks that show what a reader types, or a log: not code of a language.
bool shows_commands(const PageLine& line) {
  return line.fenced && !line.fence && (line.language.empty() || line.language.starts_with("sh"));
}

TEST(DocsNames, CommandsAndTheirOptionsExist) {
  ASSERT_GT(commands_of_hone().size(), 15U);
  for (const fs::path& page : pages()) {
    std::string command;  // over lines that end with a backslash
    for (const PageLine& line : lines_of(page)) {
      if (shows_commands(line)) {
        command += line.text;
        if (command.ends_with("\\")) {
          command.back() = ' ';
          continue;
        }
        check_commands(command, place(page, line));
        command.clear();
      } else if (!line.fenced) {
        for (const std::string& span : code_spans(line.text)) check_commands(span, place(page, line));
      }
    }
  }
}

TEST(DocsNames, OptionsInCodeFontExist) {
  std::set<std::string> known = options_in(read_file(source_folder() / "dev"));
  for (const auto& [name, help] : commands_of_hone()) known.insert(help.options.begin(), help.options.end());
  for (const fs::path& page : pages())
    for (const PageLine& line : lines_of(page)) {
      if (line.fenced || !has_prose(page)) continue;
      for (const std::string& span : code_spans(line.text)) {
        if (!span.starts_with("--")) continue;
        for (const std::string& option : options_in(span))
          EXPECT_TRUE(known.contains(option) || kForeign.contains(option))
              << place(page, line) << "no option " << option;
      }
    }
}

// ---- Names in code font

// Every word of the sources, examples, recipes and scripts.
const std::set<std::string>& words_of_the_tree() {
  static const std::set<std::string> words = [] {
    static const std::set<std::string> kinds{".h",  ".cpp",  ".cu",  ".cuh",  ".c",   ".py",
                                             ".sh", ".toml", ".txt", ".html", ".json"};
    std::set<std::string> out;
    for (const auto& top : fs::directory_iterator(source_folder())) {
      const std::string folder = shown(top.path());
      if (!top.is_directory() || folder.starts_with(".") || folder == "build" || folder == "docs" || folder == "runs")
        continue;
      for (const auto& entry : fs::recursive_directory_iterator(top.path())) {
        if (!entry.is_regular_file() || !kinds.contains(entry.path().extension().string())) continue;
        if (entry.path().filename().string().starts_with("docs_")) continue;  // this test's own lists
        std::string word;
        for (const char c : read_file(entry.path()) + " ") {
          if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
            word += c;
          } else if (!word.empty()) {
            out.insert(std::exchange(word, {}));
          }
        }
      }
    }
    return out;
  }();
  return words;
}

// A type, a function, a member or a key: CamelCase::name, snake_case. A reader's own names begin with my_.
bool is_identifier(const std::string& span) {
  static const std::regex form(R"(([A-Za-z][A-Za-z0-9]*::)*[A-Za-z][A-Za-z0-9_]*(\(\))?)");
  static const std::regex mixed(R"([A-Z][a-z0-9]+[A-Z][A-Za-z0-9]*)");
  if (!std::regex_match(span, form) || span.starts_with("my_")) return false;
  return span.find('_') != std::string::npos || span.find("::") != std::string::npos || std::regex_match(span, mixed);
}

TEST(DocsNames, NamesInCodeFontAreInTheTree) {
  static const std::regex word("([A-Za-z0-9_]+)");
  for (const fs::path& page : pages()) {
    if (!has_prose(page)) continue;
    for (const PageLine& line : lines_of(page)) {
      if (line.fenced) continue;
      for (const std::string& span : code_spans(line.text)) {
        if (!is_identifier(span) || kForeign.contains(span)) continue;
        for (const std::string& part : matches(span, word))
          EXPECT_TRUE(words_of_the_tree().contains(part)) << place(page, line) << "no source has " << span;
      }
    }
  }
}

}  // namespace
}  // namespace hone::test
