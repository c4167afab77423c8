#include "run/show_data.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/base/suggest.h"
#include "core/io/file.h"
#include "core/text/unicode/unicode.h"
#include "run/recipe/start.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// A folder for temporary files that is removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string path = (fs::temp_directory_path() / "hone-show-XXXXXX").string();
    HONE_CHECK(::mkdtemp(path.data()), path, ": cannot be made; set TMPDIR to a folder that can be written");
    path_ = path;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The stages to show: the named one, or all that train.
std::vector<size_t> chosen_stages(const Recipe& recipe, const std::string& name) {
  std::vector<size_t> out;
  std::vector<std::string> known;
  for (size_t i = 0; i < recipe.stage.size(); ++i) {
    known.push_back(recipe.stage[i].name);
    const bool chosen = name.empty() ? recipe.stage[i].stage->trains() : recipe.stage[i].name == name;
    if (chosen) out.push_back(i);
  }
  HONE_CHECK(!out.empty(),
             name.empty() ? "the recipe has no stage that trains" : concat("no stage is named '", name, "'"),
             suggestion(name, known), "; stages: ", join(known));
  return out;
}

// The tokenizer of stage `index`: the recipe's, or that of a run folder if an earlier stage trains it.
Tokenizer tokenizer_of(const Recipe& recipe, size_t index, const ShowOptions& options) {
  std::optional<Tokenizer> out;
  if (!options.tokenizer.empty()) {
    out = recipe.model.chat.with_settings(Tokenizer::load(expand_path(options.tokenizer)));
  } else {
    for (size_t i = 0; i < index; ++i) {
      if (recipe.stage[i].stage->vocab_size() == 0) continue;
      const fs::path trained = fs::path(recipe.source).parent_path() / "tokenizer";
      HONE_CHECK(Tokenizer::is_in(trained), "stage ", recipe.stage[index].name, ": stage ", recipe.stage[i].name,
                 " trains its tokenizer; run that stage first, then give --tokenizer RUN/tokenizer");
      out = recipe.model.chat.with_settings(Tokenizer::load(trained));
    }
    if (!out) out = start_tokenizer(recipe);
  }
  HONE_CHECK(out, "stage ", recipe.stage[index].name,
             ": the recipe names no tokenizer and no model folder; give --tokenizer");
  for (size_t i = 0; i < index; ++i)
    if (const PromptFormat* format = recipe.stage[i].stage->prompt_format();
        format && recipe.stage[i].stage->hands_model_on())
      out = format->saved_tokenizer(*out);
  return std::move(*out);
}

// The token as one can see it: control characters and incomplete characters as escapes.
std::string visible(const Tokenizer& tokenizer, int32_t id) {
  const std::string bytes = tokenizer.is_added(id) ? tokenizer.token(id) : tokenizer.token_bytes(id);
  const bool is_text = valid_utf8_prefix(bytes) == bytes.size();
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    constexpr std::string_view hex = "0123456789abcdef";
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !is_text))
      out += {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
    else
      out += c;
  }
  return out;
}

// ANSI colors by role.
constexpr std::array<const char*, 8> kColors = {"2", "35", "36", "32", "33", "36", "32", "39"};

std::string painted(std::string_view text, TokenRole role, bool trained) {
  return concat("\x1b[", kColors.at(static_cast<size_t>(role)), trained ? ";1;4m" : "m", text, "\x1b[0m");
}

int64_t num_trained(const ShownSample& shown) {
  return std::ranges::count_if(shown.sample.columns.find(columns::mask), [](float m) { return m != 0; });
}

std::string heading(const ShownSample& shown) {
  const int64_t length = std::ssize(shown.sample.tokens);
  std::string out = shown.where + (shown.part.empty() ? "" : " (" + shown.part + ")");
  out += concat(": ", length, " tokens, ", num_trained(shown), " trained");
  if (length < shown.full_length) out += concat(", truncated from ", shown.full_length);
  if (!shown.left_out.empty()) out += "; left out: " + shown.left_out;
  if (!shown.note.empty()) out += "; " + shown.note;
  return out + "\n";
}

}  // namespace

std::vector<ShownStage> show_data(const Recipe& recipe, const ShowOptions& options,
                                  std::optional<Tokenizer>& tokenizer) {
  std::vector<ShownStage> out;
  for (const size_t index : chosen_stages(recipe, options.stage)) {
    const StageSpec& spec = recipe.stage[index];
    const ScratchFolder scratch;
    tokenizer = tokenizer_of(recipe, index, options);
    try {
      out.push_back({spec.name, spec.kind(),
                     spec.stage->show({.tokenizer = *tokenizer, .rows = options.rows, .scratch = scratch.path()})});
    } catch (const Error& error) {  // adds the stage
      fail("stage ", spec.name, ": ", error.what());
    }
  }
  return out;
}

std::string shown_text(const ShownSample& shown, const Tokenizer& tokenizer, const ShowStyle& style) {
  const std::vector<int32_t>& ids = shown.sample.tokens;
  const std::span<const float> mask = shown.sample.columns.find(columns::mask);
  std::string out = heading(shown);
  for (size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    const TokenRole role = shown.roles[begin];
    const bool trained = mask[begin] != 0;
    std::string text;
    for (end = begin; end < ids.size() && shown.roles[end] == role && (mask[end] != 0) == trained; ++end) {
      if (end > begin) text += style.ids ? " " : "\u00b7";
      const std::string token = visible(tokenizer, ids[end]);
      text += style.color ? painted(token, role, trained) : token;
      if (style.ids) text += concat("/", ids[end]);
    }
    std::string name(name_of(role));
    name.resize(11, ' ');
    out += concat("  ", trained ? "+ " : "  ", name, text, "\n");
  }
  return out;
}

Json shown_json(const std::string& stage, const ShownSample& shown, const Tokenizer& tokenizer) {
  JsonArray tokens, roles, mask;
  for (const int32_t id : shown.sample.tokens) tokens.emplace_back(visible(tokenizer, id));
  for (const TokenRole role : shown.roles) roles.emplace_back(name_of(role));
  for (const float m : shown.sample.columns.find(columns::mask)) mask.emplace_back(static_cast<int64_t>(m != 0));
  Json out = JsonObject{{"stage", stage},
                        {"where", shown.where},
                        {"part", shown.part},
                        {"num_tokens", std::ssize(shown.sample.tokens)},
                        {"num_trained", num_trained(shown)},
                        {"full_length", shown.full_length},
                        {"left_out", shown.left_out},
                        {"ids", Json::array(shown.sample.tokens)},
                        {"tokens", std::move(tokens)},
                        {"mask", std::move(mask)},
                        {"roles", std::move(roles)}};
  if (!shown.note.empty()) out.set("note", shown.note);
  return out;
}

std::string shown_legend(const ShowStyle& style) {
  std::string out = concat("+ = trained on", style.color ? " (bold, underlined)" : "", "; tokens are separated by ",
                           style.ids ? "blanks, each with its id" : "\u00b7");
  if (!style.color) return out + "\n";
  out += "; colors:";
  for (const TokenRole role :
       {TokenRole::format, TokenRole::system, TokenRole::user, TokenRole::assistant, TokenRole::tool})
    out += " " + painted(name_of(role), role, false);
  return out + "\n";
}

}  // namespace hone
