// hone export: writes a model folder with adapters merged into the weights, a mixture of experts made of a dense model,
// or a GGUF file.
#include <algorithm>
#include <cstdio>

#include "cli/command.h"
#include "core/io/file.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/io/adapter.h"
#include "model/io/export_gguf.h"
#include "model/io/import.h"
#include "model/io/upcycle.h"

namespace hone {
namespace {

class ExportCommand : public Command {
 public:
  std::string summary() const override {
    return "write a model folder with LoRA adapters merged into the weights, a mixture of experts, or a GGUF file";
  }
  std::string example() const override {
    return "hone export --model runs/lora/checkpoints/sft/step-100 --out merged\n  hone export --model "
           "runs/lora/checkpoints/sft/step-100 --gguf q8_0 --out model.gguf\n  hone export --model dense --upcycle 8 "
           "--out mixture";
  }
  void arguments(Arguments& a) override {
    a.option("model", model_, "model folder, folder of a PEFT adapter, or .gguf file");
    a.positional("path", path_, "the same as --model", false);
    a.option("out", out_, "folder to write, or file with --gguf; it must not exist yet", true);
    a.option("gguf", gguf_,
             "write a GGUF file for llama.cpp with matrices of this type: f32 | f16 | bf16 | q8_0; empty = a folder");
    a.option("upcycle", upcycle_,
             "make a mixture of this many experts, each a copy of the dense model's MLP; 0 = leave the model as it is");
    a.option("experts-per-token", experts_per_token_, "experts of each token, with --upcycle; 0 = 2");
    a.option("seed", seed_, "seed of the routers' random weights, with --upcycle; -1 = not given, which is 0");
    a.option("dtype", dtype_, "dtype of the written weights: f32 | bf16 | auto (that of the model's files)");
  }
  int run() override {
    require_usage(dtype_ == "auto" || dtype_ == "f32" || dtype_ == "bf16", "export: --dtype is '", dtype_,
                  "'; it must be auto, f32 or bf16");
    require_usage(model_.empty() != path_.empty(), "export: give the model once, as --model or as a path");
    require_usage(upcycle_ == 0 || gguf_.empty(), "export: --upcycle writes a folder; remove --gguf");
    require_usage(upcycle_ == 0 || (upcycle_ >= 2 && upcycle_ <= 4096), "export: --upcycle is ", upcycle_,
                  "; it must be in [2, 4096]");
    require_usage(upcycle_ > 0 || experts_per_token_ == 0,
                  "export: --experts-per-token has no effect without --upcycle: give --upcycle, or remove it");
    require_usage(upcycle_ > 0 || seed_ == -1,
                  "export: --seed has no effect without --upcycle: give --upcycle, or remove it");
    require_usage(upcycle_ == 0 || (experts_per_token_ >= 0 && experts_per_token_ <= upcycle_),
                  "export: --experts-per-token is ", experts_per_token_, "; it must be in [1, ", upcycle_, "]");
    const std::filesystem::path from = expand_path(model_.empty() ? path_ : model_), to = expand_path(out_);
    if (gguf_.empty())
      write_folder(from, to);
    else
      write_gguf(from, to);
    std::printf("%s\n", to.c_str());
    return 0;
  }

 private:
  void write_folder(const std::filesystem::path& from, const std::filesystem::path& to) const {
    require_usage(to.extension() != ".gguf",
                  "export: --out is a .gguf file; say its type with --gguf f32, f16, bf16 or q8_0");
    write_folder_atomic(to, [&](const std::filesystem::path& folder) {
      const auto dtype = dtype_ == "auto" ? std::nullopt : std::optional(dtype_ == "f32" ? DType::f32 : DType::bf16);
      if (upcycle_ > 0)
        upcycle_model(from, folder,
                      {.num_experts = upcycle_,
                       .num_choices = experts_per_token_ == 0 ? 2 : experts_per_token_,
                       .dtype = dtype,
                       .seed = static_cast<uint64_t>(seed_ == -1 ? 0 : seed_)});
      else
        export_model(from, folder, dtype);
      if (const std::filesystem::path tokenizer = tokenizer_folder(from); Tokenizer::is_in(tokenizer))
        Tokenizer::load(tokenizer).save(folder);
    });
  }
  void write_gguf(const std::filesystem::path& from, const std::filesystem::path& to) const {
    constexpr std::pair<std::string_view, const char*> types[] = {
        {"f32", "F32"}, {"f16", "F16"}, {"bf16", "BF16"}, {"q8_0", "Q8_0"}};
    const auto type = std::ranges::find(types, gguf_, [](const auto& one) { return one.first; });
    require_usage(type != std::end(types), "export: --gguf is '", gguf_, "'; it must be f32, f16, bf16 or q8_0");
    require_usage(dtype_ == "auto", "export: --dtype is for folders; --gguf gives the type of a GGUF file");
    export_gguf(from, to, gguf_type_named(type->second));
  }
  std::string model_, path_, out_, gguf_, dtype_ = "auto";
  int64_t upcycle_ = 0, experts_per_token_ = 0, seed_ = -1;
};

[[maybe_unused]] const bool added =
    commands().add("export", [] { return std::unique_ptr<Command>(new ExportCommand); });

}  // namespace
}  // namespace hone
