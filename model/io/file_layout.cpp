#include "model/io/file_layout.h"

#include "model/io/fused_experts.h"

namespace hone {

Registry<FileLayout>& file_layouts() {
  static Registry<FileLayout> registry("file layout");
  return registry;
}

FileLayout file_layout(const Json& config) {
  const Json* type = config.is_object() ? config.find("model_type") : nullptr;
  const FileLayout* own = type && type->is_string() ? file_layouts().find(type->as_string()) : nullptr;
  return own ? *own : FileLayout{.read = [](auto file) { return split_fused_experts(std::move(file), false); }};
}

namespace {
[[maybe_unused]] const bool added =
    file_layouts().add("mixtral", {.read = [](auto file) { return split_fused_experts(std::move(file), true); }});
}  // namespace

}  // namespace hone
