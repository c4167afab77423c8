#include "model/io/import.h"

#include "core/io/file.h"
#include "core/text/tokenizer/gguf_tokenizer.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/io/file_layout.h"
#include "model/io/gguf_model.h"
#include "model/io/model_files.h"
#include "model/io/param_slices.h"

namespace hone {
namespace fs = std::filesystem;

// The path without a slash at its end.
static fs::path folder_path(const fs::path& to) {
  const fs::path target = fs::absolute(to).lexically_normal();
  return target.has_filename() ? target : target.parent_path();
}

void check_new_folder(const fs::path& to) {
  const fs::path final = folder_path(to);
  HONE_CHECK(!fs::exists(fs::symlink_status(final)) || (fs::is_directory(final) && fs::is_empty(final)), to.string(),
             ": already exists; give a new folder, or an empty one");
}

void write_folder_atomic(const fs::path& to, const std::function<void(const fs::path& folder)>& write) {
  check_new_folder(to);
  const fs::path final = folder_path(to);
  const fs::path temporary = final.string() + ".tmp";
  fs::remove_all(temporary);  // of a killed process
  try {
    make_folder(temporary);
    write(temporary);
    fs::rename(temporary, final);
  } catch (...) {  // nothing half-written is left, whatever the reason
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

void import_gguf(const fs::path& from, const fs::path& to, DType dtype) {
  check_model_path(from);
  HONE_CHECK(!fs::is_directory(from), from.string(),
             ": not a GGUF file, but a model folder already; every command takes it as it is");
  HONE_CHECK(is_gguf(from), from.string(), ": not a GGUF file");
  const GgufModel file(from, dtype);
  Json config = file.config();
  const std::unique_ptr<Model> model = make_model(config, from.string());
  std::vector<LazyTensor> tensors;
  for (const FileSlice& slice : match_slices(*model, file, from)) {
    const TensorOutline outline = file.outline(slice.name);
    tensors.push_back(
        {slice.name, outline.dtype, outline.shape, [&file, &from, name = slice.name](std::vector<char>& storage) {
           const Tensor tensor = file.read(name, storage);
           check_finite(name, tensor, file, from);
           return tensor;
         }});
  }
  if (const FileLayout layout = file_layout(config); layout.write) tensors = layout.write(std::move(tensors));
  for (const char* key : {"torch_dtype", "dtype"}) config.set(key, dtype == DType::f32 ? "float32" : "bfloat16");
  write_folder_atomic(to, [&](const fs::path& folder) {
    write_file_atomic(folder / "config.json", config.dump(2) + "\n");
    write_file_atomic(folder / "generation_config.json", gguf_generation_config(file.file()).dump(2) + "\n");
    if (Tokenizer::is_in(from)) {
      const Tokenizer tokenizer = Tokenizer::load(from);
      check_tokenizer(*model, tokenizer);
      tokenizer.save(folder);
    }
    write_safetensors(folder / "model.safetensors", std::move(tensors));
  });
}

}  // namespace hone
