#pragma once
// The reference of recipe keys: docs/reference/recipes/, made from the fields() that also read TOML.
#include <string>
#include <vector>

namespace hone {

struct ReferencePage {
  std::string file;  // a name in docs/reference/recipes/
  std::string text;  // Markdown
};

// Every key of a run, and of every stage, objective, optimizer, reward, generator and task kind. The first page,
// README.md, is the index of the others.
std::vector<ReferencePage> recipe_reference();

}  // namespace hone
