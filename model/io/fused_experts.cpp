#include "model/io/fused_experts.h"

#include <algorithm>
#include <map>

#include "model/io/param_slices.h"

namespace hone {
namespace {

constexpr std::string_view part_of_experts = ".experts.", gate_up_end = ".experts.gate_up_proj",
                           down_end = ".experts.down_proj";
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
        add_part(renamed(name), {.source = name});
    }
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& [name, part] : parts_) out.push_back(name);
    return out;
  }
  bool contains(std::string_view name) const override { return parts_.contains(name); }
  std::string holder(std::string_view name) const override {
    if (const auto found = parts_.find(name); found != parts_.end()) return found->second.source;
    // A layer that lacks the tensor: it is fused, unless the layer's other experts are not.
    const std::optional<std::string> fused = fused_expert_name(name);
    if (!fused) return std::string(name);
    const std::string_view experts =
        std::string_view(name).substr(0, name.rfind(part_of_experts) + part_of_experts.size());
    const auto next = parts_.lower_bound(experts);
    const bool single = next != parts_.end() && next->first.starts_with(experts) && next->second.expert < 0;
    return single ? std::string(name) : *fused;
  }
  std::optional<Holding> holding(std::string_view holder, std::span<const int64_t> slice,
                                 int64_t count) const override {
    const bool inner = holder.ends_with(gate_up_end);
    if (!inner && !holder.ends_with(down_end)) return std::nullopt;
    Holding out;
    if (file_->contains(holder)) out.found = file_->outline(holder);
    out.wanted = inner ? std::vector{count / 2, 2 * slice[0], slice[1]} : std::vector{count, slice[0], slice[1]};
    return out;
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
  void add_part(const std::string& name, Part part) {
    const auto [found, added] = parts_.emplace(name, part);
    HONE_CHECK(added, part.source, " and ", found->second.source, " both hold ", name,
               "; the file must have one of them");
  }
  std::string renamed(std::string name) const {
    constexpr std::string_view block = ".mlp.";
    const size_t place = mixtral_ ? name.find(block) : std::string::npos;
    return place == std::string::npos ? name : name.replace(place, block.size(), ".block_sparse_moe.");
  }
  void split(const std::string& name, bool inner) {
    const std::vector<int64_t> shape = file_->outline(name).shape;
    HONE_CHECK(shape.size() == 3 && shape[0] >= 1 && shape[0] <= max_experts && (!inner || shape[1] % 2 == 0), name,
               " is ", shape_text(shape), ", wants [experts, ", inner ? "2 * inner, hidden]" : "hidden, inner]",
               " with at most ", max_experts, " experts");
    const std::string prefix = renamed(name.substr(0, name.rfind('.') + 1));
    for (int64_t e = 0; e < shape[0]; ++e) {
      const auto add = [&](const char* usual, const char* of_mixtral, int64_t first, int64_t rows) {
        add_part(concat(prefix, e, ".", mixtral_ ? of_mixtral : usual, ".weight"), {name, e, first, rows});
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

std::optional<std::string> fused_expert_name(std::string_view name) {
  constexpr std::string_view mixtral_block = ".block_sparse_moe.";
  const size_t place = name.rfind(part_of_experts);
  if (place == std::string_view::npos) return std::nullopt;
  const size_t number = place + part_of_experts.size(), dot = name.find_first_not_of("0123456789", number);
  if (dot == number || dot == std::string_view::npos || name[dot] != '.') return std::nullopt;
  const std::string_view rest = name.substr(dot + 1), module = rest.substr(0, rest.find('.'));
  const bool bias = rest.ends_with(".bias"), down = module == "down_proj" || module == "w2";
  if (!down && module != "gate_proj" && module != "up_proj" && module != "w1" && module != "w3") return std::nullopt;
  if (rest.size() != module.size() + (bias ? std::string_view(".bias") : std::string_view(".weight")).size())
    return std::nullopt;
  std::string out = concat(name.substr(0, number), down ? "down_proj" : "gate_up_proj", bias ? "_bias" : "");
  if (const size_t block = out.find(mixtral_block); block != std::string::npos)
    out.replace(block, mixtral_block.size(), ".mlp.");
  return out;
}

std::unique_ptr<TensorFile> split_fused_experts(std::unique_ptr<TensorFile> file, bool mixtral) {
  const bool fused = std::ranges::any_of(
      file->names(), [](const std::string& name) { return name.ends_with(gate_up_end) || name.ends_with(down_end); });
  if (!fused) return file;
  return std::make_unique<SplitFile>(std::move(file), mixtral);
}

}  // namespace hone
