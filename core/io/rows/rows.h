#pragma once
// What `files` of a recipe, a task or a command names: a file of rows, or the split of a Hugging Face dataset folder.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/rows/row_reader.h"

namespace hone {

// The files of a name after expand_path(): the file itself, or the shards of a folder in order. A folder may be
// followed by its split, or by its configuration and split: "gsm8k", "gsm8k:test", "gsm8k:main:test". Without one it is
// `split`.
std::vector<std::string> row_files(std::string_view name, std::string_view split = "train");

// True if row_files() would look for a split: the name is that of a folder.
bool is_dataset_folder(std::string_view name);

// Reads the files of a name one after another.
std::unique_ptr<RowReader> open_rows(std::string_view name, std::string_view split = "train");
// Calls row(value, where) for each of them.
void each_row(std::string_view name, const std::function<void(const Json& row, const std::string& where)>& row);

}  // namespace hone
