#pragma once
// The sources of a stage: its [[stage.source]] tables, or the stage's own keys as the only source.
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/config/fields.h"
#include "data/dataset.h"

namespace hone {

// One source. Settings: a type with a member `rows` (RowSource), such as SftSource.
template <class Settings>
struct DataSource {
  std::string key = {};   // of its table in the stage's, "source[0]"; "" = the stage's own keys
  std::string name = {};  // of samples and metrics; "" = the stage's own keys
  double weight = 0;      // 0 = the number of its samples
  Settings settings;
};

// The name of a source that has none: of its first file or folder, or of its generator.
std::string name_of(const RowSource& rows);

template <class Settings>
class Sources {
 public:
  // own: the stage's own keys, which were read before. A source's keys default to them. visit: the keys of a source.
  void fields(Fields& f, const Settings& own, const std::function<void(Fields&, Settings&)>& visit) {
    const auto resize = [&](size_t count) {
      DataSource<Settings> fresh{.settings = own};
      fresh.settings.rows.files.clear();
      fresh.settings.rows.generator = {};
      list_.assign(count, fresh);
    };
    const auto item = [&](size_t i, Fields& g) {
      DataSource<Settings>& source = list_[i];
      g("name", source.name, "name of the source in samples and metrics; empty = of its first file or generator");
      g("weight", source.weight,
        "share of the samples relative to the other sources' weights; 0 = the number of its samples");
      visit(g, source.settings);
      if (g.reading() && source.name.empty()) source.name = name_of(source.settings.rows);
      g.require("weight", source.weight >= 0 && std::isfinite(source.weight), "weight must be 0 or more");
    };
    f.tables("source", list_.size(), resize, item,
             "several sources of rows instead of files or generator; a source's keys default to those of the stage");
    const bool own_rows = !own.rows.files.empty() || !own.rows.generator.kind.empty();
    f.require(own.rows.files.empty() ? "generator" : "files", list_.empty() || !own_rows,
              "rows come from the stage's own files or generator, or from its sources, not both");
    if (!f.reading()) return;
    std::set<std::string> names;
    size_t weighted = 0;
    for (const DataSource<Settings>& source : all(own)) {
      f.require("source", names.insert(source.name).second,
                concat("two sources are named '", source.name, "': give each its own name"));
      weighted += source.weight > 0;
    }
    f.require("source", weighted == 0 || weighted == list_.size(),
              concat(weighted, " of ", list_.size(), " sources have a weight: give one to each, or to none"));
  }

  bool empty() const { return list_.empty(); }
  // The first source's settings. Its chat format is the one that the trained model is saved with.
  const Settings& first() const { return list_.front().settings; }
  std::vector<DataSource<Settings>> all(const Settings& own) const {
    if (list_.empty()) return {{.settings = own}};
    std::vector<DataSource<Settings>> out = list_;
    for (size_t i = 0; i < out.size(); ++i) out[i].key = concat("source[", i, "]");
    return out;
  }

 private:
  std::vector<DataSource<Settings>> list_;
};

}  // namespace hone
