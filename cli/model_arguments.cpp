#include "cli/model_arguments.h"

#include "core/file.h"

namespace hone {

std::unique_ptr<Device> open_device(const std::string& name) { return devices().at(name != "auto" ? name : devices().find("cuda") ? "cuda" : "cpu")(0); }

void ModelArguments::arguments(Arguments& a) {
  a.option("model", folder_, "model folder (config.json, safetensors, tokenizer)", true);
  a.option("device", device_name_, "cpu | cuda | auto");
}

static bool holds_tokenizer(const std::filesystem::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.json.gz", "tokenizer.model", "vocab.json"})
    if (std::filesystem::exists(folder / name)) return true;
  const std::filesystem::path config = folder / "tokenizer_config.json";
  return std::filesystem::exists(config) && parse_json(read_file(config), config.string()).find("char_ords");
}

void ModelArguments::open() {
  const std::filesystem::path folder = expand_path(folder_);
  device_ = open_device(device_name_);
  context_ = std::make_unique<Context>(*device_);
  model_ = load_model(*context_, folder);
  if (holds_tokenizer(folder)) tokenizer_ = Tokenizer::load(folder);
  if (tokenizer_) HONE_CHECK(tokenizer_->vocab_size() <= model_->shape().vocab_size, folder.string(), ": the tokenizer has ids up to ", tokenizer_->vocab_size() - 1, ", the model's vocabulary is ", model_->shape().vocab_size);
}

const Tokenizer& ModelArguments::tokenizer() const {
  HONE_CHECK(tokenizer_, folder_, ": the folder has no tokenizer (tokenizer.json or tokenizer.model); give rows of ids instead");
  return *tokenizer_;
}

}  // namespace hone
