// Models as Hugging Face folders.
#include <algorithm>
#include <cstring>
#include <set>

#include "core/file.h"
#include "core/json.h"
#include "core/model/model.h"
#include "core/safetensors.h"
#include "core/tokenizer.h"
#include "kernels/cast.h"

namespace hone {
namespace {

constexpr std::string_view head_name = "lm_head.weight";
constexpr std::string_view value_head_name = "score.weight";

// A row block of a parameter and where the file has it.
struct Piece {
  const Param* param;
  int64_t first_row, rows;
  std::string name;  // in the file

  Tensor value() const { return param->value.rows(first_row, rows); }
  std::vector<int64_t> file_shape() const {
    if (param->shape.size() == 1) return {rows};
    return param->transposed ? std::vector{param->shape[1], rows} : std::vector{rows, param->shape[1]};
  }
};

std::vector<Piece> pieces_of(Model& model) {
  std::vector<Piece> out;
  for (const Param* param : model.params()) {
    int64_t row = 0;
    for (const Param::Block& block : param->blocks) {
      out.push_back({param, row, block.rows, block.name});
      row += block.rows;
    }
  }
  return out;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string out;
  for (const int64_t dim : shape) out += (out.empty() ? "[" : ", ") + std::to_string(dim);
  return out + "]";
}

// Tables that older checkpoints carry and that are no parameters: causal masks and rotary frequencies.
bool is_buffer(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

bool same_numbers(Tensor a, Tensor b) {
  return a.dtype == b.dtype && std::ranges::equal(a.dims(), b.dims()) && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// Gives every piece its name in the file, or throws the list of what does not fit.
std::vector<Piece> match(Model& model, const SafetensorsReader& file, const std::filesystem::path& folder) {
  std::vector<Piece> pieces = pieces_of(model);
  std::vector<std::string> problems;
  std::set<std::string> used;
  for (Piece& piece : pieces) {
    // A file saved from the model without its head lacks the first part of each name ("transformer.", "model.").
    const std::string bare = piece.name.substr(piece.name.find('.') + 1);
    const std::string name = !file.contains(piece.name) && file.contains(bare) ? bare : piece.name;
    if (!file.contains(name)) {
      problems.push_back("missing " + piece.name);
      continue;
    }
    const Tensor tensor = file.at(name);
    const std::vector<int64_t> shape = piece.file_shape();
    if (!std::ranges::equal(tensor.dims(), shape)) problems.push_back(concat(name, " is ", shape_text(tensor.dims()), ", wants ", shape_text(shape)));
    const bool number = tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16 || tensor.dtype == DType::f64;
    if (!number) problems.push_back(concat(name, " holds ", name_of(tensor.dtype), ", wants f32, bf16, f16 or f64"));
    used.insert(piece.name = name);
  }
  const std::string& head = std::ranges::find(pieces, &model.head(), &Piece::param)->name;
  for (const std::string& name : file.names()) {
    if (used.contains(name) || is_buffer(name) || name == value_head_name) continue;
    if (name != head_name || !file.contains(head))
      problems.push_back("surplus " + name);
    else if (!same_numbers(file.at(name), file.at(head)))
      problems.push_back(concat(head_name, " differs from ", head, " although config.json ties them (tie_word_embeddings)"));
  }
  if (problems.empty()) return pieces;
  constexpr size_t shown = 12;
  const size_t count = problems.size();
  if (count > shown) problems.resize(shown);
  fail(folder.string(), ": the tensors do not fit config.json: ", join(problems, "; "),
       count > shown ? concat("; and ", count - shown, " more") : "");
}

// to [cols, rows] = from [rows, cols], elements of `width` bytes wherever they lie.
void transpose(char* to, const char* from, int64_t rows, int64_t cols, size_t width) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      std::memcpy(to + static_cast<size_t>(c * rows + r) * width, from + static_cast<size_t>(r * cols + c) * width, width);
}

void read_piece(Context& context, Arena& staging, const Piece& piece, Tensor file) {
  const Arena::Mark mark = staging.mark();
  std::vector<char> turned;
  if (piece.param->transposed) {
    turned.resize(file.bytes());
    transpose(turned.data(), static_cast<const char*>(file.data), file.dim(0), file.dim(1), size_of(file.dtype));
    file.data = turned.data();
  }
  const Tensor value = piece.value(), raw = staging.take(file.dtype, value.dims());
  context.copy(raw, file);  // the file's bytes may be unaligned: copied before they are read as numbers
  cast(context, value, raw);
  context.synchronize();
  staging.release(mark);
}

std::vector<char> host_bytes(Context& context, Arena& staging, const Piece& piece, DType dtype) {
  const Arena::Mark mark = staging.mark();
  const Tensor value = piece.value(), raw = staging.take(dtype, value.dims());
  cast(context, raw, value);
  std::vector<char> out(raw.bytes());
  context.copy(Tensor(out.data(), dtype, DeviceKind::cpu, raw.dims()), raw);
  context.synchronize();
  if (piece.param->transposed) {
    const std::vector<char> plain = out;
    transpose(out.data(), plain.data(), value.dim(0), value.dim(1), size_of(dtype));
  }
  staging.release(mark);
  return out;
}

Json generation_defaults(const Json& config) {
  JsonObject out{{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (const Json* id = config.find(key); id && !id->is_null()) out.emplace_back(key, *id);
  return out;
}

}  // namespace

std::unique_ptr<Model> load_model(Context& context, const std::filesystem::path& folder, const LoadOptions& options) {
  const std::filesystem::path config = folder / "config.json";
  HONE_CHECK(std::filesystem::is_directory(folder), folder.string(), ": not a model folder: there is no such folder");
  HONE_CHECK(std::filesystem::exists(config), folder.string(), ": not a model folder: it has no config.json");
  std::unique_ptr<Model> model = make_model(parse_json(read_file(config), config.string()), config.string());
  const SafetensorsReader file(folder);
  const std::vector<Piece> pieces = match(*model, file, folder);  // before any memory is asked for
  model->allocate(context, options.dtype, options.gradients);
  Arena staging(context.device());
  for (const Piece& piece : pieces) read_piece(context, staging, piece, file.at(piece.name));
  return model;
}

void save_model(Context& context, Model& model, const std::filesystem::path& folder, DType dtype, const Json& generation_config,
                std::span<const float> value_head) {
  HONE_CHECK(dtype == DType::f32 || dtype == DType::bf16, "a model is saved as f32 or bf16, not ", name_of(dtype));
  make_folder(folder);
  Json config = model.config();
  for (const char* key : {"torch_dtype", "dtype"}) config.set(key, dtype == DType::f32 ? "float32" : "bfloat16");  // transformers 4's name, and 5's
  write_file_atomic(folder / "config.json", config.dump(2) + "\n");
  const Json generation = generation_config.is_object() && !generation_config.as_object().empty() ? generation_config : generation_defaults(config);
  write_file_atomic(folder / "generation_config.json", generation.dump(2) + "\n");

  Arena staging(context.device());
  std::vector<std::vector<char>> bytes;
  std::vector<NamedTensor> tensors;
  for (const Piece& piece : pieces_of(model)) {
    bytes.push_back(host_bytes(context, staging, piece, dtype));
    tensors.push_back({piece.name, Tensor(bytes.back().data(), dtype, DeviceKind::cpu, piece.file_shape())});
  }
  if (!value_head.empty()) {
    HONE_CHECK(static_cast<int64_t>(value_head.size()) == model.shape().hidden_size, value_head_name, " has ", value_head.size(),
               " numbers, the model is ", model.shape().hidden_size, " wide");
    tensors.push_back({std::string(value_head_name), host_view(value_head).view({1, model.shape().hidden_size})});
  }
  write_safetensors(folder / "model.safetensors", tensors);
}

std::vector<float> load_value_head(Context& context, const std::filesystem::path& folder) {
  const SafetensorsReader file(folder);
  if (!file.contains(value_head_name)) return {};
  const Tensor weight = file.at(value_head_name);
  HONE_CHECK(weight.rank == 2 && weight.dim(0) == 1, folder.string(), ": ", value_head_name, " is ", shape_text(weight.dims()),
             ", a reward model's has one row");
  Arena staging(context.device());
  const Tensor raw = staging.take(weight.dtype, weight.dims()), numbers = staging.take(DType::f32, {weight.size()});
  context.copy(raw, weight);
  cast(context, numbers, raw.view({weight.size()}));
  std::vector<float> out(static_cast<size_t>(weight.size()));
  context.copy(host_view(std::span(out)), numbers);
  return out;
}

void check_tokenizer(const Model& model, const Tokenizer& tokenizer) {
  HONE_CHECK(tokenizer.vocab_size() <= model.shape().vocab_size, "the tokenizer does not belong to the model: its largest id is ",
             tokenizer.vocab_size() - 1, ", the model's vocabulary has ", model.shape().vocab_size, " entries");
}

}  // namespace hone
