#include "core/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "core/io/file.h"
#include "core/io/json.h"
#include "core/text/tokenizer/added_tokens.h"
#include "core/text/tokenizer/tokenizer_files.h"
#include "core/text/tokenizer/tokenizer_json.h"

namespace hone {
namespace {

// "eos_token": "</s>" or {"content": "</s>", ...}.
std::string special_text(const Json& config, std::string_view name) {
  const Json* value = config.find(name);
  if (value && value->is_object()) value = value->find("content");
  return value && value->is_string() ? value->as_string() : std::string();
}

// "eos_token_id": 2 or [2, 5].
std::vector<int32_t> special_ids(const Json& config, const std::string& name, int32_t vocab_size,
                                 const std::string& where) {
  std::vector<int32_t> ids;
  const Json* value = config.find(name);
  if (!value || value->is_null()) return ids;
  for (const Json& id : value->is_array() ? value->as_array() : JsonArray{*value}) {
    const int64_t checked = id.as_int(where + ": " + name);
    HONE_CHECK(checked >= 0 && checked < vocab_size, where, ": ", name, " is ", checked,
               ", but the tokenizer's ids end at ", vocab_size - 1);
    ids.push_back(static_cast<int32_t>(checked));
  }
  return ids;
}

void add_once(std::vector<int32_t>& ids, int32_t id) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerFiles files);

  void find_special_ids(const TokenizerFiles& files);
  std::optional<int32_t> find(std::string_view token) const;
  const std::string* find_spelling(int32_t id) const;  // nullptr: no token has it
  const std::string& spelling(int32_t id) const;
  void encode(std::string_view text, bool parse_special, bool begins, std::vector<int32_t>& ids) const;

  std::string source;
  TokenizerParts parts;
  AddedTokenMatcher in_text, in_normalized_text;
  std::vector<int32_t> added_by_id;  // index in parts.added, or -1
  std::unordered_map<std::string_view, int32_t> added_ids;
  Json config;
  std::optional<int32_t> bos, eos, pad;
  std::vector<int32_t> stop_ids;  // without the end of turn
};

// What depends on the chat template.
struct Tokenizer::Chat {
  std::string text, source;  // of the template
  std::vector<std::pair<std::string, std::string>> named = {};
  Json kwargs = JsonObject{};
  std::optional<int32_t> end_of_turn = {};  // of the assistant
  std::vector<int32_t> stop_ids = {};
};

Tokenizer::Impl::Impl(TokenizerFiles files)
    : source(files.source), parts(read_tokenizer_json(files.tokenizer, files.source)), config(std::move(files.config)) {
  added_by_id.assign(static_cast<size_t>(parts.vocab_size), -1);
  std::vector<AddedToken> plain, normalized;
  for (size_t i = 0; i < parts.added.size(); ++i) {
    AddedToken token = parts.added[i];
    added_by_id[static_cast<size_t>(token.id)] = static_cast<int32_t>(i);
    added_ids.emplace(parts.added[i].content, token.id);
    const bool rewritten = token.normalized && parts.normalizer;
    if (rewritten) token.content = parts.normalizer->apply(token.content, true);
    (rewritten ? normalized : plain).push_back(std::move(token));
  }
  in_text = AddedTokenMatcher(std::move(plain));
  in_normalized_text = AddedTokenMatcher(std::move(normalized));
  find_special_ids(files);
}

void Tokenizer::Impl::find_special_ids(const TokenizerFiles& files) {
  const std::string folder = std::filesystem::path(source).parent_path().string();
  const auto listed = [&](const std::string& name) {
    std::vector<int32_t> ids =
        special_ids(files.generation, name, parts.vocab_size, folder + "/generation_config.json");
    if (ids.empty()) ids = special_ids(files.model_config, name, parts.vocab_size, folder + "/config.json");
    return ids;
  };
  const auto choose = [&](const std::string& name) -> std::optional<int32_t> {
    if (const std::string text = special_text(config, name); !text.empty())
      if (const auto id = find(text)) return id;
    const std::vector<int32_t> ids = listed(name + "_id");
    return ids.empty() ? std::nullopt : std::optional(ids.front());
  };
  bos = choose("bos_token");
  eos = choose("eos_token");
  pad = choose("pad_token");
  if (eos) stop_ids.push_back(*eos);
  for (const int32_t id : listed("eos_token_id")) add_once(stop_ids, id);
}

std::optional<int32_t> Tokenizer::Impl::find(std::string_view token) const {
  if (const auto added = added_ids.find(token); added != added_ids.end()) return added->second;
  const int32_t id = parts.model->find(token);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

const std::string* Tokenizer::Impl::find_spelling(int32_t id) const {
  if (id < 0 || id >= parts.vocab_size) return nullptr;
  const auto at = static_cast<size_t>(id);
  if (const int32_t added = added_by_id[at]; added >= 0) return &parts.added[static_cast<size_t>(added)].content;
  const auto& spellings = parts.model->spellings();
  return at < spellings.size() && !spellings[at].empty() ? &spellings[at] : nullptr;
}

const std::string& Tokenizer::Impl::spelling(int32_t id) const {
  const std::string* found = find_spelling(id);
  HONE_CHECK(found, source, ": no token has id ", id, " (ids end at ", parts.vocab_size - 1, ")");
  return *found;
}

void Tokenizer::Impl::encode(std::string_view text, bool parse_special, bool begins, std::vector<int32_t>& ids) const {
  const TextStart text_start = begins ? TextStart::text : TextStart::continued;
  const auto take = [&](int32_t id) { ids.push_back(id); };
  const auto take_word = [&](std::string_view word, TextStart) {
    if (!word.empty()) parts.model->encode(word, ids);
  };
  const auto take_text = [&](size_t begin, size_t end) {
    const std::string_view piece = text.substr(begin, end - begin);
    const TextStart start = begin == 0 ? text_start : TextStart::part;
    if (!parts.normalizer && in_normalized_text.empty()) return parts.pre_tokenizer->split(piece, start, take_word);
    const std::string normalized = parts.normalizer
                                       ? parts.normalizer->apply(std::string(piece), start != TextStart::continued)
                                       : std::string(piece);
    in_normalized_text.each(
        normalized, parse_special,
        [&](size_t from, size_t to) {
          parts.pre_tokenizer->split(std::string_view(normalized).substr(from, to - from),
                                     from == 0 ? start : TextStart::part, take_word);
        },
        take);
  };
  in_text.each(text, parse_special, take_text, take);
}

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl, Chat chat) : impl_(std::move(impl)) {
  chat.stop_ids = impl_->stop_ids;
  chat.end_of_turn.reset();
  const auto owned = std::make_shared<Chat>(std::move(chat));
  chat_ = owned;
  owned->end_of_turn = find_end_of_turn(*this);
  if (owned->end_of_turn) add_once(owned->stop_ids, *owned->end_of_turn);
}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

bool Tokenizer::is_in(const std::filesystem::path& folder) { return !vocabulary_file(folder).empty(); }

Tokenizer Tokenizer::make(TokenizerFiles files) {
  Chat chat{.text = std::move(files.chat_template),
            .source = std::move(files.chat_template_source),
            .named = std::move(files.named_chat_templates)};
  return {std::make_shared<Impl>(std::move(files)), std::move(chat)};
}

Tokenizer Tokenizer::with_chat_template(std::string text, std::string source) const {
  Chat chat = *chat_;
  chat.text = std::move(text);
  chat.source = std::move(source);
  return {impl_, std::move(chat)};
}

Tokenizer Tokenizer::with_chat_template_kwargs(const Json& kwargs) const {
  Chat chat = *chat_;
  for (const auto& [name, value] : kwargs.as_object("chat_template_kwargs")) chat.kwargs.set(name, value);
  return {impl_, std::move(chat)};
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) { return make(read_tokenizer_files(path)); }

Tokenizer Tokenizer::from_json(const Json& tokenizer_json, std::string_view source, const Json& config) {
  TokenizerFiles files;
  files.source = source, files.tokenizer = tokenizer_json, files.config = config;
  files.chat_template_source = source;
  if (const Json* text = config.find("chat_template"); text && text->is_string()) {
    files.chat_template = text->as_string();
    files.chat_template_source = concat(source, ": chat_template");
  }
  return make(std::move(files));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special, bool begins) const {
  std::vector<int32_t> ids;
  impl_->encode(text, parse_special, begins, ids);
  return ids;
}

std::vector<int32_t> Tokenizer::encode_document(std::string_view text) const {
  std::vector<int32_t> ids = impl_->parts.frame.before;
  impl_->encode(text, true, true, ids);
  ids.insert(ids.end(), impl_->parts.frame.after.begin(), impl_->parts.frame.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    if (!skip_special)
      tokens.push_back(impl_->spelling(id));
    else if (const std::string* spelling = impl_->find_spelling(id); spelling && !is_special(id))
      tokens.push_back(*spelling);
  }
  impl_->parts.decoder->decode(tokens, true);
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const std::string* spelling = impl_->find_spelling(id);
  if (!spelling) return {};
  std::vector<std::string> tokens{*spelling};
  impl_->parts.decoder->decode(tokens, false);
  return tokens.empty() ? std::string() : tokens.front();
}

int32_t Tokenizer::vocab_size() const { return impl_->parts.vocab_size; }
std::optional<int32_t> Tokenizer::find(std::string_view token) const { return impl_->find(token); }
std::string Tokenizer::token(int32_t id) const { return impl_->spelling(id); }

bool Tokenizer::is_special(int32_t id) const {
  if (id == chat_->end_of_turn) return true;
  return is_added(id) && impl_->parts.added[static_cast<size_t>(impl_->added_by_id[static_cast<size_t>(id)])].special;
}

bool Tokenizer::is_added(int32_t id) const {
  return id >= 0 && id < impl_->parts.vocab_size && impl_->added_by_id[static_cast<size_t>(id)] >= 0;
}

std::optional<int32_t> Tokenizer::bos() const { return impl_->bos; }
std::optional<int32_t> Tokenizer::eos() const { return impl_->eos; }
std::optional<int32_t> Tokenizer::pad() const { return impl_->pad; }
std::vector<int32_t> Tokenizer::stop_ids() const { return chat_->stop_ids; }
const std::string& Tokenizer::chat_template() const { return chat_->text; }
const std::string& Tokenizer::chat_template_source() const { return chat_->source; }
const std::vector<std::pair<std::string, std::string>>& Tokenizer::named_chat_templates() const { return chat_->named; }
const Json& Tokenizer::chat_template_kwargs() const { return chat_->kwargs; }

std::string Tokenizer::special_token(std::string_view name) const {
  if (std::string text = special_text(impl_->config, name); !text.empty()) return text;
  const auto spelled = [&](std::optional<int32_t> id) { return id ? impl_->spelling(*id) : std::string(); };
  return name == "bos_token"   ? spelled(impl_->bos)
         : name == "eos_token" ? spelled(impl_->eos)
         : name == "pad_token" ? spelled(impl_->pad)
                               : std::string();
}

Json Tokenizer::template_list(const Chat& chat) {
  JsonArray out = {JsonObject{{"name", "default"}, {"template", chat.text}}};
  for (const auto& [name, text] : chat.named)
    if (name != "default") out.push_back(JsonObject{{"name", name}, {"template", text}});
  return out;
}

void Tokenizer::save(const std::filesystem::path& folder) const {
  make_folder(folder);
  write_file_atomic(folder / "tokenizer.json", write_tokenizer_json(impl_->parts).dump(2) + "\n");
  Json config = impl_->config;
  if (!config.find("tokenizer_class")) config.set("tokenizer_class", "PreTrainedTokenizerFast");
  for (const char* name : {"bos_token", "eos_token", "pad_token"})
    if (const std::string text = special_token(name); !text.empty()) config.set(name, text);
  if (!chat_->text.empty()) {
    config.set("chat_template", chat_->named.empty() ? Json(chat_->text) : template_list(*chat_));
    write_file_atomic(folder / "chat_template.jinja", chat_->text);
  }
  for (const auto& [name, text] : chat_->named) {
    if (name == "default") continue;
    make_folder(folder / kNamedTemplates);
    write_file_atomic(folder / kNamedTemplates / (name + ".jinja"), text);
  }
  write_file_atomic(folder / "tokenizer_config.json", config.dump(2) + "\n");
}

Json generation_config_json(const Tokenizer& tokenizer) {
  JsonArray stops;
  for (const int32_t id : tokenizer.stop_ids()) stops.push_back(int64_t{id});
  if (stops.empty()) return JsonObject{};
  return JsonObject{{"eos_token_id", stops.size() == 1 ? stops[0] : Json(stops)}};
}

}  // namespace hone
