#include "train/parallel/shard_map.h"

#include <algorithm>

#include "core/base/check.h"
#include "kernels/optimizer/optimizer.h"

namespace hone {

ShardMap::ShardMap(std::vector<int64_t> unit_sizes, size_t ranks, int64_t piece)
    : sizes_(std::move(unit_sizes)), ranks_(ranks), piece_(piece) {
  HONE_CHECK(ranks > 0, "shards: no ranks");
  HONE_CHECK(piece > 0 && piece % param_granule == 0, "shards: pieces of ", piece, " elements, wants a multiple of ",
             param_granule);
}

int64_t ShardMap::num_pieces(size_t unit) const { return (sizes_[unit] + piece_ - 1) / piece_; }

ElementRange ShardMap::pieces(size_t unit, size_t rank) const {
  const int64_t count = num_pieces(unit), ranks = static_cast<int64_t>(ranks_), r = static_cast<int64_t>(rank);
  return {count * r / ranks, count * (r + 1) / ranks};
}

ElementRange ShardMap::shard(size_t unit, size_t rank) const {
  const ElementRange own = pieces(unit, rank);
  return {std::min(own.first * piece_, sizes_[unit]), std::min(own.last * piece_, sizes_[unit])};
}

int64_t ShardMap::owned_elements(size_t rank) const {
  int64_t out = 0;
  for (size_t unit = 0; unit < sizes_.size(); ++unit) out += shard(unit, rank).size();
  return out;
}

int64_t ShardMap::owned_pieces(size_t rank) const {
  int64_t out = 0;
  for (size_t unit = 0; unit < sizes_.size(); ++unit) out += pieces(unit, rank).size();
  return out;
}

}  // namespace hone
