#include "model/io/fused_experts.h"

#include <algorithm>
#include <map>

namespace hone {
namespace {

constexpr std::string_view gate_up_end = ".experts.gate_up_proj", down_end = ".experts.down_proj";
constexpr int64_t max_experts = 4096;

// A matrix of one expert: rows [first, first + rows) of expert `expert` of a fused tensor. expert -1: all of another
// tensor, under another name.
struct Part {
  std::string source;
  int64_t expert = -1, first = 0, rows = 0;
};

class SplitFile : public TensorFile {
 public:
  SplitFile(std::unique_ptr<TensorFile> file, bool mixtral) : file_(std::move(file)), mixtral_(mixtral) {
    for (const std::string& name : file_->names()) {
      const bool inner = name.ends_with(gate_up_end);
      if (inner || name.ends_with(down_end))
        split(name, inner);
      else
        parts_[renamed(name)] = {.source = name};
    }
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& [name, part] : parts_) out.push_back(name);
    return out;
  }
  bool contains(std::string_view name) const override { return parts_.contains(name); }
  std::string holder(std::string_view name) const override {
    const auto found = parts_.find(name);
    return found == parts_.end() ? std::string(name) : found->second.source;
  }
  TensorOutline outline(std::string_view name) const override {
    const Part& part = at(name);
    const TensorOutline source = file_->outline(part.source);
    if (part.expert < 0) return source;
    return {source.dtype, {part.rows, source.shape[2]}};
  }
  Tensor read(std::string_view name, std::vector<char>& storage) const override {
    const Part& part = at(name);
    const Tensor fused = file_->read(part.source, storage);
    if (part.expert < 0) return fused;
    const int64_t columns = fused.dim(2), first = (part.expert * fused.dim(1) + part.first) * columns;
    return {static_cast<char*>(fused.data) + static_cast<size_t>(first) * size_of(fused.dtype),
            fused.dtype,
            fused.device,
            {part.rows, columns}};
  }

 private:
  const Part& at(std::string_view name) const {
    const auto found = parts_.find(name);
    HONE_CHECK(found != parts_.end(), "the file has no tensor ", name);
    return found->second;
  }
  std::string renamed(std::string name) const {
    constexpr std::string_view block = ".mlp.";
    const size_t place = mixtral_ ? name.find(block) : std::string::npos;
    return place == std::string::npos ? name : name.replace(place, block.size(), ".block_sparse_moe.");
  }
  void split(const std::string& name, bool inner) {
    const std::vector<int64_t> shape = file_->outline(name).shape;
    HONE_CHECK(shape.size() == 3 && shape[0] >= 1 && shape[0] <= max_experts && (!inner || shape[1] % 2 == 0), name,
               " has ", shape.size(), " dims, wants [experts, ", inner ? "2 * inner, hidden]" : "hidden, inner]");
    const std::string prefix = renamed(name.substr(0, name.rfind('.') + 1));
    for (int64_t e = 0; e < shape[0]; ++e) {
      const auto add = [&](const char* usual, const char* of_mixtral, int64_t first, int64_t rows) {
        parts_[concat(prefix, e, ".", mixtral_ ? of_mixtral : usual, ".weight")] = {name, e, first, rows};
      };
      if (inner) {
        add("gate_proj", "w1", 0, shape[1] / 2);
        add("up_proj", "w3", shape[1] / 2, shape[1] / 2);
      } else {
        add("down_proj", "w2", 0, shape[1]);
      }
    }
  }

  std::unique_ptr<TensorFile> file_;
  bool mixtral_;
  std::map<std::string, Part, std::less<>> parts_;
};

}  // namespace

std::unique_ptr<TensorFile> split_fused_experts(std::unique_ptr<TensorFile> file, bool mixtral) {
  const bool fused = std::ranges::any_of(
      file->names(), [](const std::string& name) { return name.ends_with(gate_up_end) || name.ends_with(down_end); });
  if (!fused) return file;
  return std::make_unique<SplitFile>(std::move(file), mixtral);
}

}  // namespace hone
