// hone export: writes a model folder with adapters merged into the weights.
#include <cstdio>

#include "cli/command.h"
#include "core/io/file.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/io/adapter.h"
#include "model/io/model_folder.h"

namespace hone {
namespace {

class ExportCommand : public Command {
 public:
  std::string summary() const override { return "write a model folder with LoRA adapters merged into the weights"; }
  std::string example() const override { return "hone export --model runs/lora/checkpoints/sft/step-100 --out merged"; }
  void arguments(Arguments& a) override {
    a.option("model", model_, "model folder, or folder of a PEFT adapter", true);
    a.option("out", out_, "folder to write; it must not exist yet", true);
    a.option("dtype", dtype_, "dtype of the written weights: f32 | bf16 | auto (that of the model's files)");
  }
  int run() override {
    require_usage(dtype_ == "auto" || dtype_ == "f32" || dtype_ == "bf16", "export: --dtype is '", dtype_,
                  "'; it must be auto, f32 or bf16");
    const std::filesystem::path from = expand_path(model_), to = expand_path(out_);
    HONE_CHECK(!std::filesystem::exists(to), to.string(), ": already exists; give a new folder");
    read_model_folder(from);  // an Error names what is no model
    export_model(from, to, dtype_ == "auto" ? std::nullopt : std::optional(dtype_ == "f32" ? DType::f32 : DType::bf16));
    if (const std::filesystem::path tokenizer = tokenizer_folder(from); Tokenizer::is_in(tokenizer))
      Tokenizer::load(tokenizer).save(to);
    std::printf("%s\n", to.c_str());
    return 0;
  }

 private:
  std::string model_, out_, dtype_ = "auto";
};

[[maybe_unused]] const bool added =
    commands().add("export", [] { return std::unique_ptr<Command>(new ExportCommand); });

}  // namespace
}  // namespace hone
