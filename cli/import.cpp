// hone import: makes a Hugging Face folder of a GGUF file.
#include "model/io/import.h"

#include <cstdio>

#include "cli/command.h"
#include "core/io/file.h"

namespace hone {
namespace {

class ImportCommand : public Command {
 public:
  std::string summary() const override { return "make a Hugging Face folder of a GGUF file"; }
  std::string example() const override { return "hone import SmolLM2-135M-Instruct.Q4_1.gguf --out smollm2"; }
  void arguments(Arguments& a) override {
    a.positional("file", file_, "GGUF file; the first of a split model");
    a.option("out", out_, "folder to write: config.json, model.safetensors, tokenizer.json, chat template", true);
    a.option("dtype", dtype_, "dtype of the written weights: bf16 | f32");
  }
  int run() override {
    require_usage(dtype_ == "bf16" || dtype_ == "f32", "import: --dtype is '", dtype_, "'; it must be bf16 or f32");
    const std::filesystem::path to = expand_path(out_);
    import_gguf(expand_path(file_), to, dtype_ == "f32" ? DType::f32 : DType::bf16);
    std::printf("%s\n", to.c_str());
    return 0;
  }

 private:
  std::string file_, out_, dtype_ = "bf16";
};

[[maybe_unused]] const bool added =
    commands().add("import", [] { return std::unique_ptr<Command>(new ImportCommand); });

}  // namespace
}  // namespace hone
