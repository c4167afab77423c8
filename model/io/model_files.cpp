#include "model/io/model_files.h"

#include <algorithm>
#include <optional>

#include "core/base/suggest.h"
#include "core/io/file.h"
#include "core/io/nearest_path.h"
#include "core/text/tokenizer/gguf_tokenizer.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/io/adapter.h"
#include "model/io/gguf_model.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view what_is_right =
    "; give a Hugging Face folder (config.json, model.safetensors, tokenizer.json) or a .gguf file";

// What a file is, by its content and name; empty: unknown.
std::string kind_of_file(const fs::path& path) {
  const std::string beginning = read_beginning(path, 16), extension = path.extension().string();
  const auto begins = [&](std::string_view bytes) { return beginning.starts_with(bytes); };
  if (begins("ggjt") || begins("tjgg") || begins("lmgg") || begins("fmgg") || begins("algg"))
    return "a GGML file, the format before GGUF; convert it with llama.cpp's convert_llama_ggml_to_gguf.py";
  if (begins("PK\x03\x04") || begins("\x80\x02") || begins("\x80\x03") || begins("\x80\x04"))
    return "a PyTorch pickle; save it with save_pretrained(..., safe_serialization=True) in transformers";
  if (extension == ".onnx") return "an ONNX graph, which has no config.json to build the model from";
  if (extension == ".safetensors") return "a safetensors file";
  if (path.filename() == "config.json") return "a config.json without weights";
  if (path.filename() == "adapter_config.json") return "the config of an adapter";
  if (begins("\x89HDF")) return "an HDF5 file of Keras";
  if (extension == ".tflite" || beginning.substr(std::min<size_t>(4, beginning.size())).starts_with("TFL3"))
    return "a TensorFlow Lite file";
  if (extension == ".bin" || extension == ".pt" || extension == ".pth")
    return "weights as PyTorch and other programs write them, without what is needed to read them";
  if (extension == ".toml") return "a TOML file, as recipes are";
  return {};
}

bool has_file(const fs::path& folder, const auto& matches) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (matches(entry.path())) return true;
  return false;
}

// The newest model inside a folder that is none: a run's checkpoint, or a snapshot of Hugging Face's cache.
std::optional<fs::path> model_within(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  auto entry = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, ignored);
  constexpr int max_entries = 20000;
  for (int i = 0; entry != fs::recursive_directory_iterator() && i < max_entries; entry.increment(ignored), ++i) {
    if (entry.depth() > 3) entry.pop(ignored);
    if (entry == fs::recursive_directory_iterator()) break;
    const fs::path name = entry->path().filename();
    if (name == "config.json" || name == "adapter_config.json") found.push_back(entry->path().parent_path());
  }
  if (found.empty()) return std::nullopt;
  return *std::ranges::max_element(found, {}, [](const fs::path& path) {
    std::error_code problem;
    return std::pair(fs::last_write_time(path, problem), path);
  });
}

// Why a folder without config.json is no model, and what would be right.
std::string problem_of_folder(const fs::path& folder) {
  const auto any = [&](std::string_view extension) {
    return has_file(folder, [&](const fs::path& path) { return path.extension() == extension; });
  };
  std::string lacks = "not a model folder: it has no config.json";
  if (any(".gguf")) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".gguf") files.push_back(entry.path());
    return lacks + "; it has a GGUF file, give that: " + std::ranges::min(files).string();
  }
  if (fs::exists(folder / "params.json") || any(".pth"))
    return lacks +
           "; it has Meta's original format (params.json, consolidated.*.pth): convert it with transformers' "
           "convert_llama_weights_to_hf.py";
  if (any(".onnx")) return lacks + ", but an ONNX graph" + std::string(what_is_right);
  if (any(".bin") || any(".pt"))
    return lacks + ", but PyTorch pickles: save it with save_pretrained(..., safe_serialization=True) in transformers";
  if (const auto inner = model_within(folder)) return lacks + "; did you mean " + inner->string() + "?";
  return lacks + (any(".safetensors") ? ", only weights; add the model's config.json" : std::string(what_is_right));
}

// Why a folder with config.json has no weights that can be read; empty: it may have.
std::string problem_of_weights(const fs::path& folder) {
  const auto named = [&](const auto& matches) { return has_file(folder, matches); };
  if (named([](const fs::path& path) { return path.filename().string().find(".safetensors") != std::string::npos; }))
    return {};
  std::string lacks = "no model.safetensors in the folder, nor model.safetensors.index.json";
  if (named([](const fs::path& path) {
        const std::string name = path.filename().string();
        return name.starts_with("pytorch_model") || name.ends_with(".pt") || name.ends_with(".pth");
      }))
    return lacks +
           "; it has PyTorch pickles (pytorch_model.bin), which can run code and are not read: save the model "
           "with save_pretrained(..., safe_serialization=True) in transformers";
  if (named([](const fs::path& path) { return path.extension() == ".onnx"; }))
    return lacks + "; it has an ONNX graph; get the model's safetensors files";
  if (named([](const fs::path& path) { return path.extension() == ".h5" || path.extension() == ".msgpack"; }))
    return lacks + "; it has weights of TensorFlow or Flax; get the model's safetensors files";
  return lacks;
}

}  // namespace

void check_model_path(const fs::path& path) {
  if (is_gguf(path)) return;
  if (!fs::exists(path)) {
    const std::string text = path.string();
    const bool hub_name = !path.empty() && path.is_relative() && std::ranges::count(text, '/') == 1 &&
                          !fs::exists(path.parent_path()) && text.front() != '.';
    fail(text, ": not a model folder: there is no such folder", nearest_path(path),
         hub_name ? concat("; for a model of the Hugging Face hub, download it first (hf download ", text,
                           " --local-dir DIR) and give DIR")
                  : std::string(what_is_right));
  }
  if (!fs::is_directory(path)) {
    const std::string kind = kind_of_file(path);
    const bool in_folder = fs::exists(path.parent_path() / "config.json") && !path.parent_path().empty();
    fail(path.string(), ": not a model folder", kind.empty() ? "" : ", but " + kind,
         in_folder ? "; give its folder: " + path.parent_path().string() : std::string(what_is_right));
  }
  if (is_adapter(path)) return;
  HONE_CHECK(fs::exists(path / "config.json"), path.string(), ": ", problem_of_folder(path));
}

void check_weights(const fs::path& folder) {
  const std::string problem = problem_of_weights(folder);
  HONE_CHECK(problem.empty(), folder.string(), ": ", problem);
}

std::string config_source(const fs::path& model) {
  return is_gguf(model) ? model.string() : (model / "config.json").string();
}

Json read_model_config(const fs::path& model) {
  check_model_path(model);
  if (is_gguf(model)) return GgufModel(model).config();
  return parse_json(read_file(model / "config.json"), config_source(model));
}

Json read_generation_config(const fs::path& model) {
  Json out = JsonObject{};
  for (const fs::path& path : {base_folder(model), model}) {
    if (is_gguf(path))
      out = gguf_generation_config(GgufReader(path));
    else if (const fs::path file = path / "generation_config.json"; fs::exists(file))
      out = parse_json(read_file(file), file.string());
  }
  HONE_CHECK(out.is_object(), model.string(), ": generation_config.json is ", out.kind_name(), ", wants an object");
  return out;
}

// The id of padding. One that also ends texts is left out: transformers does not train the embedding of padding.
static std::optional<int32_t> own_pad(const Tokenizer& tokenizer) {
  return tokenizer.pad() == tokenizer.eos() ? std::nullopt : tokenizer.pad();
}

Json with_stop_ids(Json generation_config, const Tokenizer& tokenizer) {
  constexpr const char* key = "eos_token_id";
  if (generation_config.is_object() && generation_config.as_object().empty())
    for (const auto& [own, id] : {std::pair{"bos_token_id", tokenizer.bos()}, {"pad_token_id", own_pad(tokenizer)}})
      if (id) generation_config.set(own, int64_t{*id});
  const std::vector<int32_t> stops = tokenizer.stop_ids();
  if (stops.empty()) return generation_config;
  JsonArray ids;
  if (const Json* given = generation_config.find(key); given && !given->is_null())
    ids = given->is_array() ? given->as_array() : JsonArray{*given};
  const JsonArray before = ids;
  const auto is_stop = [&](const Json& id) {
    return id.is_int() && std::ranges::find(stops, id.as_int()) != stops.end();
  };
  std::erase_if(ids, [&](const Json& id) { return !is_stop(id); });  // of another tokenizer
  for (const int32_t stop : stops)
    if (std::ranges::find(ids, Json(int64_t{stop})) == ids.end()) ids.push_back(int64_t{stop});
  if (ids != before) generation_config.set(key, ids.size() == 1 ? ids[0] : Json(ids));
  return generation_config;
}

void set_token_ids(Json& config, const Json& generation_config) {
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config.find(key)) continue;
    const Json* id = generation_config.is_object() ? generation_config.find(key) : nullptr;
    config.set(key, id ? *id : Json());
  }
}

}  // namespace hone
