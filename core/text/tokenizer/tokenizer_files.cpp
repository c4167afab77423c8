#include "core/text/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <charconv>

#include "core/base/suggest.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/text/tokenizer/byte_level.h"
#include "core/text/tokenizer/gguf_tokenizer.h"
#include "core/text/tokenizer/sentencepiece_model.h"
#include "core/text/tokenizer/tokenizer_fields.h"
#include "core/text/unicode/unicode.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> vocabulary_names = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                                   "tokenizer_config.json"};

// folder/name or folder/name.gz, or empty. A link that leads nowhere is found: reading it is an Error with its name.
fs::path find_file(const fs::path& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"})
    if (fs::exists(fs::symlink_status(folder / (name + suffix)))) return folder / (name + suffix);
  return {};
}

Json read_json(const fs::path& path) { return parse_json(read_file(path), path.string()); }

Json read_object_or_empty(const fs::path& folder, const std::string& name) {
  const fs::path path = find_file(folder, name);
  if (path.empty()) return JsonObject{};
  Json json = read_json(path);
  json.as_object(path.string());
  return json;
}

Json added_token_json(int64_t id, std::string_view content, bool special) {
  return JsonObject{{"id", id},        {"content", content},     {"single_word", false}, {"lstrip", false},
                    {"rstrip", false}, {"normalized", !special}, {"special", special}};
}

// additional_chat_templates/NAME.jinja, in the order of names.
void read_template_folder(const fs::path& folder, TokenizerFiles& files) {
  std::error_code none;
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / kNamedTemplates, none))
    if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
  std::ranges::sort(paths);
  for (const fs::path& path : paths) add_named_template(files, path.stem().string(), read_file(path), path.string());
}

// tokenizer_config.json's chat_template: a text, or a list of templates with names, of which "default" is for
// conversations. source: the name of config in errors.
void read_config_template(const std::string& source, TokenizerFiles& files) {
  const Json* found = files.config.find("chat_template");
  if (!found || found->is_null()) return;
  const std::string where = source + ": chat_template";
  files.chat_template_source = where;
  if (found->is_string()) {
    files.chat_template = found->as_string();
    return;
  }
  std::string& text = files.chat_template;
  for (const Json& entry : found->as_array(where)) {
    entry.as_object(where);
    const std::string body = entry.at("template", where).as_string(where + ".template");
    const std::string name = string_field(entry, "name", "", where);
    if (text.empty() || name == "default") text = body;
    if (!name.empty()) add_named_template(files, name, body, where);
  }
}

void read_chat_templates(const fs::path& folder, const std::string& source, TokenizerFiles& files) {
  if (!folder.empty()) read_template_folder(folder, files);
  const fs::path path = folder.empty() ? fs::path() : find_file(folder, "chat_template.jinja");
  read_config_template(source, files);
  if (path.empty()) return;
  files.chat_template = read_file(path);
  files.chat_template_source = path.string();
}

// Reads a vocabulary file by its content. Adds its special tokens to files.config.
void read_vocabulary(const fs::path& path, TokenizerFiles& files) {
  files.source = path.string();
  std::string bytes = read_file(path, max_tokenizer_bytes);
  const size_t first = bytes.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first == std::string::npos || bytes[first] != '{') {
    SentencePieceJson model = read_sentencepiece(bytes, files.source);
    files.tokenizer = std::move(model.tokenizer);
    for (const auto& [key, value] : model.config.as_object())
      if (!files.config.find(key)) files.config.set(key, value);
    return;
  }
  Json json = parse_json(bytes, files.source);
  // These names may also be tokens of a vocabulary.
  const auto has = [&json](std::string_view key, bool (Json::*kind)() const) {
    return json.find(key) && (json.find(key)->*kind)();
  };
  if (has("model", &Json::is_object)) {
    files.tokenizer = std::move(json);
  } else if (has("char_ords", &Json::is_array)) {
    files.config = std::move(json);
    files.tokenizer = character_tokenizer_json(files.config, files.source);
  } else {
    const fs::path merges = find_file(path.parent_path(), "merges.txt");
    HONE_CHECK(!merges.empty(), files.source,
               ": neither a tokenizer.json (no 'model') nor a vocab.json with merges.txt next to it");
    files.tokenizer =
        vocab_merges_json(std::move(json), read_file(merges, max_tokenizer_bytes), files.config, files.source);
  }
}

}  // namespace

void add_named_template(TokenizerFiles& files, const std::string& name, std::string text, const std::string& where) {
  HONE_CHECK(!name.empty() && name.find_first_of("/\\") == std::string::npos && name.front() != '.', where, ": '", name,
             "' is no name of a template; a name has no '/' and does not begin with '.'");
  const auto same = [&](const auto& one) { return one.first == name; };
  if (std::ranges::none_of(files.named_chat_templates, same))
    files.named_chat_templates.emplace_back(name, std::move(text));
}

fs::path vocabulary_file(const fs::path& folder) {
  if (is_gguf(folder)) return has_gguf_tokenizer(GgufReader(folder)) ? folder : fs::path();
  for (const std::string& name : vocabulary_names)
    if (fs::path found = find_file(folder, name); !found.empty())
      if (name != "tokenizer_config.json" || read_object_or_empty(folder, name).find("char_ords")) return found;
  return {};
}

TokenizerFiles read_tokenizer_files(const fs::path& path) {
  if (is_gguf(path)) return read_gguf_tokenizer(GgufReader(path));
  TokenizerFiles files;
  files.chat_template_source = path.string();  // if there is no template
  if (!fs::is_directory(path)) {
    read_vocabulary(path, files);
    read_chat_templates({}, files.source, files);
    return files;
  }
  files.config = read_object_or_empty(path, "tokenizer_config.json");
  const Json special = read_object_or_empty(path, "special_tokens_map.json");
  for (const auto& [key, value] : special.as_object())
    if (!files.config.find(key)) files.config.set(key, value);
  files.model_config = read_object_or_empty(path, "config.json");
  files.generation = read_object_or_empty(path, "generation_config.json");
  const fs::path vocabulary = vocabulary_file(path);
  HONE_CHECK(!vocabulary.empty(), path.string(), ": no tokenizer here; looked for ", join(vocabulary_names),
             " (the last with char_ords)");
  read_vocabulary(vocabulary, files);
  read_chat_templates(path, (path / "tokenizer_config.json").string(), files);
  return files;
}

Json character_tokenizer_json(Json& config, const std::string& source) {
  const std::vector<std::pair<const char*, const char*>> special = {
      {"sep_token", "S"}, {"eos_token", "E"}, {"pad_token", "P"}, {"unk_token", "U"}};
  JsonObject vocab;
  JsonArray added;
  for (const auto& [key, text] : special) {
    added.push_back(added_token_json(static_cast<int64_t>(vocab.size()), text, true));
    vocab.emplace_back(text, vocab.size());
    config.set(key, text);
  }
  const std::string where = source + ": char_ords";
  for (const Json& json : config.at("char_ords", source).as_array(where)) {
    const int64_t value = json.as_int(where);
    HONE_CHECK(value >= 0 && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF), where, ": ", value,
               " is no character");
    std::string character;
    append_utf8(character, static_cast<char32_t>(value));
    vocab.emplace_back(character, vocab.size());
  }
  return JsonObject{{"version", "1.0"},
                    {"added_tokens", std::move(added)},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", nullptr},
                    {"post_processor", nullptr},
                    {"decoder", JsonObject{{"type", "Fuse"}}},
                    {"model", JsonObject{{"type", "BPE"},
                                         {"unk_token", "U"},
                                         {"fuse_unk", false},
                                         {"byte_fallback", false},
                                         {"vocab", std::move(vocab)},
                                         {"merges", JsonArray{}}}}};
}

Json vocab_merges_json(Json vocab, std::string_view merges, const Json& config, const std::string& source) {
  const std::string kind = string_field(config, "tokenizer_class", "GPT2Tokenizer", source);
  HONE_CHECK(kind.starts_with("GPT2"), source, ": how a ", kind,
             " cuts words is not known from vocab.json and merges.txt; add its tokenizer.json");
  JsonArray lines;
  while (!merges.empty()) {
    const size_t end = merges.find('\n');
    std::string_view line = merges.substr(0, end);
    merges.remove_prefix(end == std::string_view::npos ? merges.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !(lines.empty() && line.starts_with("#version"))) lines.emplace_back(line);
  }
  JsonArray added;
  if (const Json* decoder = config.find("added_tokens_decoder")) {
    for (const auto& [key, token] : decoder->as_object(source + ": added_tokens_decoder")) {
      const std::string where = source + ": added_tokens_decoder['" + key + "']";
      int64_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      HONE_CHECK(error == std::errc() && end == key.data() + key.size(), where, ": the key is not an id");
      token.as_object(where);
      Json entry = token;
      entry.set("id", id);
      added.push_back(std::move(entry));
    }
  } else if (const Json* end = vocab.find("<|endoftext|>")) {
    added.push_back(added_token_json(end->as_int(source + ": <|endoftext|>"), "<|endoftext|>", true));
  }
  const bool prefix_space = bool_field(config, "add_prefix_space", false, source);
  const auto byte_level = [&](bool prefix) {
    return Json(
        JsonObject{{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", true}, {"use_regex", true}});
  };
  return JsonObject{{"version", "1.0"},
                    {"added_tokens", std::move(added)},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", byte_level(prefix_space)},
                    {"post_processor", nullptr},
                    {"decoder", byte_level(true)},
                    {"model", JsonObject{{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(lines)}}}};
}

}  // namespace hone
