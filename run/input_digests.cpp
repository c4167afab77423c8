#include "run/input_digests.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/io/file.h"
#include "core/io/gguf/gguf.h"
#include "core/net/digest.h"
#include "data/prompt.h"
#include "model/io/adapter.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// The size and 64 evenly spaced windows of a file; small files are covered completely.
std::string sampled_bytes(const fs::path& path) {
  constexpr uint64_t window = 4096, num_windows = 64;
  const uint64_t size = fs::file_size(path), last = size > window ? size - window : 0;
  const int descriptor = open_file(path);
  std::string out = concat(size, ":"), bytes(window, '\0');
  for (uint64_t i = 0; i < num_windows; ++i) {
    const ssize_t count =
        ::pread(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(last * i / (num_windows - 1)));
    if (count > 0) out.append(bytes, 0, static_cast<size_t>(count));
  }
  ::close(descriptor);
  return out;
}

bool is_weights(const fs::path& path) {
  return path.filename().string().find(".safetensors") != std::string::npos || is_gguf(path);
}

// A digest of the digests of files, so that no large file is kept in memory.
class DigestOfFiles {
 public:
  void add(const fs::path& path) {
    const Digest digest = sha256(is_weights(path) ? sampled_bytes(path) : read_file(path, max_tokenizer_bytes));
    all_.append(digest.begin(), digest.end());
  }
  template <size_t N>
  void add_those_of(const fs::path& folder, const std::array<const char*, N>& names) {
    for (const char* name : names)
      for (const char* suffix : {"", ".gz"})
        if (fs::exists(folder / concat(name, suffix))) add(folder / concat(name, suffix));
  }
  void add_weights_of(const fs::path& folder) {
    if (is_gguf(folder)) return add(folder);
    std::vector<fs::path> files;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (is_weights(entry.path()) && entry.is_regular_file(ignored)) files.push_back(entry.path());
    std::ranges::sort(files);
    for (const fs::path& file : files) add(file);
  }
  std::string text() const { return base64(sha256(all_)); }

 private:
  std::string all_;
};

// Leaves out the config of an adapter: it has the path of the base, which may change.
std::string model_digest(const fs::path& folder) {
  DigestOfFiles out;
  if (is_adapter(folder)) out.add_weights_of(folder);
  const fs::path base = base_folder(folder);
  out.add_those_of(base, std::to_array({"config.json"}));
  out.add_weights_of(base);
  return out.text();
}

std::string tokenizer_digest(const fs::path& path) {
  DigestOfFiles out;
  if (fs::is_directory(path))
    out.add_those_of(
        path, std::to_array({"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "tokenizer_config.json",
                             "special_tokens_map.json", "chat_template.jinja", "generation_config.json"}));
  else
    out.add(path);
  return out.text();
}

std::string file_digest(const fs::path& path) {
  DigestOfFiles out;
  out.add(path);
  return out.text();
}

}  // namespace

Json input_digests(const Recipe& recipe) {
  Json out = JsonObject{};
  const fs::path model = expand_path(recipe.model.path), tokenizer = expand_path(recipe.tokenizer);
  const fs::path config = expand_path(recipe.model.config);
  const bool has_model = fs::is_directory(model) || is_gguf(model);
  if (has_model) out.set("model.path", model_digest(model));
  if (fs::exists(config)) out.set("model.config", file_digest(config));
  if (fs::exists(tokenizer))
    out.set("tokenizer", tokenizer_digest(tokenizer));
  else if (tokenizer.empty() && has_model)
    out.set("tokenizer", tokenizer_digest(tokenizer_folder(model)));
  const auto add_template = [&](const std::string& key, const ChatSettings& chat) {
    if (std::error_code none; fs::is_regular_file(expand_path(chat.chat_template), none))
      out.set(key, file_digest(expand_path(chat.chat_template)));
  };
  add_template("model.chat_template", recipe.model.chat);
  for (const StageSpec& spec : recipe.stage)
    if (const PromptFormat* format = spec.stage->prompt_format())
      add_template("stage." + spec.name + ".chat_template", format->settings);
  return out;
}

}  // namespace hone
