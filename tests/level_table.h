#pragma once
// The table of levels, read from its text: which folder may include which. docs/dev/architecture.md has the same text.
//
// A row is `| level | folder | contents | may include |`. A file belongs to the row with the longest folder that holds
// it, and may include files of its own row and of the rows named, which stand above it. The last column takes,
// separated by commas:
//   nothing                     everything
//   core/net                    a row, by its folder
//   core                        every row inside a folder that has no row of its own
//   core/*                      every row inside a folder
//   core/{base,io}              core/base, core/io
//   level 2, levels 1-3         rows by their level
//   low core                    what a sentence below the table says: "low core" means core/{base,io}.
// A sentence orders the folders inside a row, which then point to earlier groups only:
//   Inside `kernels/` the order is: root; `cpu`, `cuda`; `gemm`; `gemm/sm90`.
#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/check.h"

namespace hone::test {

class LevelTable {
 public:
  explicit LevelTable(const std::string& text) {
    std::istringstream lines(text);
    std::string sentences;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("|")) {
        sentences += line + " ";
      } else if (std::smatch cells;
                 std::regex_match(line, cells, std::regex(R"(\| (\d+) \| `([^`]+)/` \|.*\| (.*) \|)"))) {
        rows_.push_back({cells[2], std::stoi(cells[1]), cells[3], {}, {}});
      }
    }
    HONE_CHECK(!rows_.empty(), "the table of levels has no rows");
    read_sentences(sentences);
    for (size_t i = 0; i < rows_.size(); ++i)
      for (const std::string& item : items_of(rows_[i].text)) rows_[i].may_include.merge(rows_named(item, i));
  }

  // Top folders, in the order of the table.
  std::vector<std::string> roots() const {
    std::vector<std::string> out;
    for (const Row& row : rows_) {
      const std::string root = row.folder.substr(0, row.folder.find('/'));
      if (std::find(out.begin(), out.end(), root) == out.end()) out.push_back(root);
    }
    return out;
  }

  // The folder of the row that a path belongs to, "" if there is none.
  std::string row_of(const std::string& path) const {
    const Row* row = find(path);
    return row ? row->folder : "";
  }

  bool may_include(const std::string& file, const std::string& header) const {
    const Row *from = find(file), *to = find(header);
    if (!from || !to) return false;
    if (from != to) return from->may_include.contains(to->folder);
    const Place a = place(*from, file), b = place(*from, header);
    return a.folder == b.folder || b.group < a.group;
  }

 private:
  struct Row {
    std::string folder;
    int level;
    std::string text;                             // what it may include, as written
    std::set<std::string> may_include;            // folders of rows
    std::vector<std::vector<std::string>> order;  // groups of folders inside it
  };
  struct Place {
    std::string folder;  // inside its row; "" for the row's own files and folders without a place of their own
    size_t group = 0;
  };

  static bool inside(const std::string& path, const std::string& folder) { return path.starts_with(folder + "/"); }

  const Row* find(const std::string& path) const {
    const Row* best = nullptr;
    for (const Row& row : rows_)
      if (inside(path, row.folder) && (!best || row.folder.size() > best->folder.size())) best = &row;
    return best;
  }

  static Place place(const Row& row, const std::string& path) {
    Place best;
    for (size_t group = 0; group < row.order.size(); ++group)
      for (const std::string& folder : row.order[group])
        if (inside(path, row.folder + "/" + folder) && folder.size() > best.folder.size()) best = {folder, group};
    return best;
  }

  // Splits at commas outside braces; `a/{b,c}` becomes `a/b` and `a/c`.
  static std::vector<std::string> items_of(const std::string& text) {
    static const std::regex item(R"(((?:[^,{]|\{[^}]*\})+))"), braces(R"((.*)\{(.*)\}(.*))");
    std::vector<std::string> out;
    for (std::sregex_iterator at(text.begin(), text.end(), item), end; at != end; ++at) {
      const std::string one = std::regex_replace(at->str(), std::regex(R"(^\s+|\s+$)"), "");
      std::smatch parts;
      if (!std::regex_match(one, parts, braces)) {
        out.push_back(one);
        continue;
      }
      std::istringstream names(parts[2]);
      for (std::string name; std::getline(names, name, ',');) out.push_back(parts[1].str() + name + parts[3].str());
    }
    return out;
  }

  void read_sentences(const std::string& text) {
    static const std::regex means(R"re("([^"]+)" means ([^.]*)\.)re"),
        order(R"(Inside `([^`]+)/` the order is: ([^.]*)\.)"), name("`([^`]+)`");
    for (std::sregex_iterator at(text.begin(), text.end(), means), end; at != end; ++at) meanings_[(*at)[1]] = (*at)[2];
    for (std::sregex_iterator at(text.begin(), text.end(), order), end; at != end; ++at) {
      const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& one) { return one.folder == (*at)[1]; });
      HONE_CHECK(row != rows_.end(), "the order of folders inside ", (*at)[1].str(), ": the table has no such row");
      std::istringstream groups((*at)[2]);
      for (std::string group; std::getline(groups, group, ';');) {
        row->order.emplace_back();
        for (std::sregex_iterator one(group.begin(), group.end(), name); one != end; ++one)
          row->order.back().push_back((*one)[1]);
      }
    }
  }

  // Folders of the rows that an item of row `place` names.
  std::set<std::string> rows_named(const std::string& item, size_t place) const {
    std::set<std::string> out;
    if (item == "nothing") return out;
    if (const auto meaning = meanings_.find(item); meaning != meanings_.end()) {
      for (const std::string& part : items_of(meaning->second)) out.merge(rows_named(part, place));
      return out;
    }
    std::smatch match;
    const bool levels = std::regex_match(item, match, std::regex(R"(levels? (\d+)(?:-(\d+))?)"));
    const int first = levels ? std::stoi(match[1]) : 0,
              last = levels ? std::stoi(match[2].matched ? match[2] : match[1]) : 0;
    const bool folder_has_row =
        std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) { return row.folder == item; });
    const std::string folder = item.ends_with("/*") ? item.substr(0, item.size() - 2) : folder_has_row ? "" : item;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      const bool by_level = levels && row.level >= first && row.level <= last;
      if (!by_level && item != "everything" && row.folder != item && (folder.empty() || !inside(row.folder, folder)))
        continue;
      HONE_CHECK(i <= place, rows_[place].folder, " may include '", item, "', but ", row.folder,
                 " stands below it in the table");
      out.insert(row.folder);
    }
    HONE_CHECK(!out.empty(), rows_[place].folder, " may include '", item, "', which names no row of the table");
    return out;
  }

  std::vector<Row> rows_;
  std::map<std::string, std::string> meanings_;
};

}  // namespace hone::test
