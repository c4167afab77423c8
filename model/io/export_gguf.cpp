#include "model/io/export_gguf.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/io/file.h"
#include "core/io/gguf/gguf_writer.h"
#include "core/text/tokenizer/gguf_tokenizer_write.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/io/adapter.h"
#include "model/io/gguf_model.h"
#include "model/io/model_files.h"
#include "model/io/model_folder.h"
#include "model/io/param_slices.h"
#include "model/modules.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

struct NamedArchitecture {
  std::string name;
  const GgufArchitecture* architecture;
};

NamedArchitecture architecture_for(const Json& config, const fs::path& from) {
  const std::string& family = config.at("model_type", "config.json").as_string("model_type");
  std::vector<std::string> known;
  for (const std::string& name : gguf_architectures().names()) {
    const GgufArchitecture& architecture = gguf_architectures().at(name);
    if (std::ranges::find(architecture.model_types, family) != architecture.model_types.end())
      return {name, &architecture};
    known.insert(known.end(), architecture.model_types.begin(), architecture.model_types.end());
  }
  fail(from.string(), ": a model of the family '", family, "' cannot be written as GGUF; supported: ", join(known));
}

void warn_about_windows(const Json& config, const fs::path& from) {
  const auto number = [&](const char* key) {
    const Json* value = config.find(key);
    return value && value->is_int() ? value->as_int() : 0;
  };
  const bool qwen = config.find("use_sliding_window") && *config.find("use_sliding_window") == Json(true);
  const bool slides = qwen || config.at("model_type") == Json("mistral");
  if (slides && number("sliding_window") > 0 && number("sliding_window") < number("max_position_embeddings"))
    log::warning(from.string(), ": llama.cpp reads all earlier tokens, this model the last ", number("sliding_window"),
                 "; longer texts get other results there");
}

// The numbers of a slice, one row after the other, rows in the file's order.
std::vector<float> numbers_of(const FileSlice& slice, int64_t interleaved_heads) {
  const Tensor value = slice.value();
  const int64_t rows = value.dim(0), columns = value.row_size();
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t to = interleaved_heads > 0 ? interleaved_row(r, rows / interleaved_heads) : r;
    std::copy_n(value.row<float>(r), columns, out.data() + to * columns);
  }
  return out;
}

const GgufType& type_of(const FileSlice& slice, std::string_view name, const GgufType& wanted) {
  const std::vector<int64_t>& shape = slice.param->shape;
  if (shape.size() == 1 || name == "position_embd.weight") return gguf_type_named("F32");
  return shape.back() % wanted.block_size == 0 ? wanted : gguf_type_named("F16");
}

void add_tensors(Model& model, const GgufArchitecture& architecture, const GgufType& type, GgufWriter& out) {
  const ModelShape& shape = model.shape();
  for (const FileSlice& slice : file_slices(model.params())) {
    const std::string name = gguf_name(architecture, slice.name);
    HONE_CHECK(!name.empty(), "export: the parameter ", slice.name, " has no place in a GGUF file of the architecture ",
               out.architecture());
    int64_t heads = 0;
    if (architecture.interleaved_rope && name.find(".attn_q.") != std::string::npos) heads = shape.num_attention_heads;
    if (architecture.interleaved_rope && name.find(".attn_k.") != std::string::npos) heads = shape.num_kv_heads;
    const GgufType& stored = type_of(slice, name, type);
    std::vector<int64_t> dims = {slice.rows};
    if (slice.param->shape.size() == 2) dims.push_back(slice.param->shape[1]);
    out.add_tensor(name, stored, std::move(dims),
                   [slice, heads, &stored] { return encode_gguf(stored, numbers_of(slice, heads)); });
  }
}

void write_general(const fs::path& from, const GgufType& type, GgufWriter& out) {
  const std::string_view name = type.name;
  const fs::path path = fs::absolute(from).lexically_normal();
  out.set_text("general.type", "model");
  out.set_text("general.name", (path.has_filename() ? path : path.parent_path()).stem().string());
  out.set_u32("general.file_type", name == "F16" ? 1 : name == "Q8_0" ? 7 : 32);  // llama.cpp's numbers
  out.set_u32("general.quantization_version", 2);
  const Json generation = read_generation_config(from);
  const auto set = [&](const char* key, const char* field, bool whole) {
    const Json* value = generation.find(field);
    if (!value || !value->is_number()) return;
    whole ? out.set_u32(key, value->as_int(field)) : out.set_f32(key, value->as_double());
  };
  set("general.sampling.temp", "temperature", false);
  set("general.sampling.top_k", "top_k", true);
  set("general.sampling.top_p", "top_p", false);
  set("general.sampling.min_p", "min_p", false);
  set("general.sampling.penalty_repeat", "repetition_penalty", false);
}

}  // namespace

void export_gguf(const fs::path& from, const fs::path& to, const GgufType& type) {
  HONE_CHECK(!fs::exists(fs::symlink_status(to)), to.string(), ": already exists; give a new file");
  check_model_path(from);
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  // GGUF files of these architectures have no layers of multi-token prediction.
  const std::unique_ptr<Model> model =
      load_changed_model(context, from, {}, {{"num_nextn_predict_layers", int64_t{0}}});
  if (model->lora()) merge_lora(context, *model);
  const Json config = model->config();
  const NamedArchitecture target = architecture_for(config, from);
  warn_about_windows(config, from);
  GgufWriter out(target.name);
  write_general(from, type, out);
  target.architecture->write_keys(config, out);
  if (const fs::path tokenizer = tokenizer_folder(from); Tokenizer::is_in(tokenizer))
    write_gguf_tokenizer(tokenizer, model->shape().vocab_size, out);
  add_tensors(*model, *target.architecture, type, out);
  const fs::path temporary = to.string() + ".tmp";
  try {
    out.write(temporary);
    fs::rename(temporary, to);
  } catch (...) {  // nothing half-written is left, whatever the reason
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace hone
