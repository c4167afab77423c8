#pragma once
// Parameter groups: settings of the parameters whose Hugging Face names match a pattern.
#include <memory>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/config/problems.h"
#include "train/optim/optimizer.h"

namespace hone {

// A glob or a regular expression. A pattern with a character that no name has (\ ^ $ + ( ) | { }), or that begins with
// a dot, is a regular expression (ECMAScript), which is searched in the name. Otherwise it is a glob for the whole
// name, or for the name of its module: * stands for any text, ? for one character, [abc] and [!abc] for one of a set or
// not.
class NamePattern {
 public:
  // Throws an Error that says what is wrong with the pattern.
  explicit NamePattern(const std::string& text);
  bool matches(const std::string& name) const;

 private:
  std::regex expression_;
  bool is_glob_;
};

// The keys of a [[stage.groups]] table.
struct ParamGroup {
  std::string match;
  double learning_rate_factor = 1;
  double weight_decay = -1;  // below 0: the optimizer's
  void fields(Fields& f);
};

// Adds a problem for each group that takes none of the names: the first group that matches a name takes it. key: of the
// groups in the table.
void check_groups(std::span<const ParamGroup> groups, std::span<const std::string> names, const Problems& problems,
                  const std::string& key);
// The names of the trained tensors among the parameters.
std::vector<std::string> trained_names(std::span<Param* const> params);

// The parts with the settings of their groups. A part of a fused matrix is cut where the group changes.
std::vector<ParamPart> with_groups(std::span<const ParamPart> parts, std::span<const ParamGroup> groups);

}  // namespace hone
