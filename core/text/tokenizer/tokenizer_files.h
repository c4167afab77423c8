#pragma once
// Reads the tokenizer files of a model folder, whatever their format, as tokenizer.json and tokenizer_config.json.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/io/json.h"

namespace hone {

struct TokenizerFiles {
  std::string source;                               // the file the vocabulary comes from, for errors
  Json tokenizer;                                   // tokenizer.json
  Json config = JsonObject{};                       // tokenizer_config.json, special_tokens_map.json's members added
  Json model_config = JsonObject{};                 // config.json
  Json generation = JsonObject{};                   // generation_config.json
  std::string chat_template, chat_template_source;  // source: file and member, for messages
  std::vector<std::pair<std::string, std::string>> named_chat_templates = {};  // {name, text}
};

// Adds a template with a name unless there is one of this name. Throws Error if the name cannot be a file's name.
// where: its place for errors.
void add_named_template(TokenizerFiles& files, const std::string& name, std::string text, const std::string& where);

// The folder of a model's templates with names: NAME.jinja.
inline constexpr const char* kNamedTemplates = "additional_chat_templates";

// The folder's file with the vocabulary, or the .gguf file itself; empty if there is none.
std::filesystem::path vocabulary_file(const std::filesystem::path& folder);
// path: a folder, a .gguf file, or another single file, which then is its own config.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& path);

// A vocabulary of single characters {"char_ords": [48, 49, ...]} (tokenizer_config.json) as tokenizer.json: "S"
// (separator), "E" (end), "P" (padding), "U" (unknown) are 0 to 3 and the characters follow. Adds the special tokens'
// names to config.
Json character_tokenizer_json(Json& config, const std::string& source);

// GPT-2's vocab.json and merges.txt as tokenizer.json; tokens of config's added_tokens_decoder are added.
Json vocab_merges_json(Json vocab, std::string_view merges, const Json& config, const std::string& source);

}  // namespace hone
