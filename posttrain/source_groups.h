#pragma once
// Loads the groups of a stage's sources and holds a share of them out.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/mixture.h"

namespace hone {

// Loads the groups of rows, in order. Task::id of a group is the place of its row.
using LoadGroups = std::function<std::vector<Group>(const RowSource& rows)>;

struct GroupSource {
  std::string name;  // "" = the stage's own keys
  double weight = 0;
  RowSource rows;
  LoadGroups load;
};

struct SourceGroups {
  std::vector<Group> train, held;  // source by source
  std::vector<MixturePart> parts;  // of train
};

// Loads all sources. With a share above 0 it holds out that share of each source (hold_out). A row that one source
// holds out is trained on by none. Groups of named sources get the name as Task::source. With several sources, samples
// get the column `source`.
SourceGroups load_sources(std::span<const GroupSource> sources, double share, uint64_t seed);

// Takes a random share of the groups out, at least one, and leaves at least one. Both parts keep their order.
std::vector<Group> hold_out(std::vector<Group>& groups, double share, uint64_t seed);

// Metrics of a loss by the column `source` get the name of the source in place of its index (source_metric()).
void name_sources(Metrics& metrics, std::span<const MixturePart> parts);

}  // namespace hone
