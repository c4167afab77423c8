#pragma once
// Text to token ids and back, as Hugging Face tokenizers do it: byte-level BPE (GPT-2, Llama-3, Qwen),
// SentencePiece-style BPE with byte fallback (Llama-2, Mistral), and a table of single characters. Immutable after
// loading; safe from any thread.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.h"

namespace hone {

struct TokenizerFiles;

class Tokenizer {
 public:
  // A folder (tokenizer.json, else tokenizer.model, else vocab.json + merges.txt, else char_ords in
  // tokenizer_config.json; special ids also from tokenizer_config.json, config.json and generation_config.json), or one
  // such file, each possibly .gz, or a .gguf file. Errors name file and field.
  static Tokenizer load(const std::filesystem::path& path);
  // Whether load() would find one in a folder or .gguf file.
  static bool is_in(const std::filesystem::path& folder);
  // config is the content of tokenizer_config.json: {"eos_token": "<|endoftext|>", "chat_template": ...}.
  static Tokenizer from_json(const Json& tokenizer_json, std::string_view source, const Json& config = JsonObject{});
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // No special tokens are added by encode(); special tokens written in the text are recognised (parse_special = false:
  // they are plain text). begins = false: the text goes on from another one, and gets no space in front as
  // SentencePiece's vocabularies begin a text.
  std::vector<int32_t> encode(std::string_view text, bool parse_special = true, bool begins = true) const;
  // encode() with what the folder's post-processor adds (a BOS for Llama, nothing for GPT-2).
  std::vector<int32_t> encode_document(std::string_view text) const;
  // Bytes of the ids joined; ids that no token has are an Error. skip_special leaves special tokens out, and those ids
  // (a model may have more ids than its tokenizer, and draw one), as Hugging Face's decoders do.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  // The bytes one id stands for within a text (what streaming appends; it may be part of a UTF-8 character); none if no
  // token has it.
  std::string token_bytes(int32_t id) const;

  int32_t vocab_size() const;  // one past the largest id
  std::optional<int32_t> find(std::string_view token) const;
  std::string token(int32_t id) const;  // the vocabulary's own spelling
  // True for special tokens, and for the token that ends the assistant's turn: no part of a reply's text.
  bool is_special(int32_t id) const;
  bool is_added(int32_t id) const;  // added to the vocabulary, special or not
  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  std::optional<int32_t> pad() const;
  // The text of a special token by its name in tokenizer_config.json ("bos_token", "sep_token", ...), "" when there is
  // none.
  std::string special_token(std::string_view name) const;
  // Ids that end a generation: eos, generation_config.json's list, and the token that ends the assistant's turn in the
  // tokenizer's own chat format (ChatFormat::make("auto")), which may be another one.
  std::vector<int32_t> stop_ids() const;
  // The Jinja chat template: the folder's (chat_template.jinja or tokenizer_config.json's chat_template), or that of
  // with_chat_template(); "" = none.
  const std::string& chat_template() const;
  const std::string& chat_template_source() const;  // its file or name, for messages
  // The folder's templates with names: {name, text}. One of them may be "default", which is chat_template().
  const std::vector<std::pair<std::string, std::string>>& named_chat_templates() const;
  // Variables for every rendering of the template (an object).
  const Json& chat_template_kwargs() const;
  // The same vocabulary with another chat template, or with more variables for it. The end of the assistant's turn and
  // stop_ids() follow the template.
  Tokenizer with_chat_template(std::string text, std::string source) const;
  Tokenizer with_chat_template_kwargs(const Json& kwargs) const;

  // Writes tokenizer.json, tokenizer_config.json (and chat_template.jinja, additional_chat_templates/) so that Hugging
  // Face and hone read the same tokenizer.
  void save(const std::filesystem::path& folder) const;

 private:
  struct Impl;
  struct Chat;
  static Tokenizer make(TokenizerFiles files);
  static Json template_list(const Chat& chat);  // tokenizer_config.json's chat_template if there are several
  Tokenizer(std::shared_ptr<const Impl> impl, Chat chat);
  std::shared_ptr<const Impl> impl_;  // the vocabulary
  std::shared_ptr<const Chat> chat_;
};

// The token that ends the assistant's turn in the tokenizer's own chat format (ChatFormat::make("auto")), if it has
// one. core/text/chat.cpp defines it; making a Tokenizer calls it once.
std::optional<int32_t> find_end_of_turn(const Tokenizer& tokenizer);

// A model folder's generation_config.json: {"eos_token_id": the tokenizer's stop id, or the list of them}; {} if it has
// none.
Json generation_config_json(const Tokenizer& tokenizer);

}  // namespace hone
