#pragma once
// ShardMap: which rank owns which elements of the units' gradients and optimizer states. A rank owns one contiguous
// range of whole pieces of each unit.
#include <cstdint>
#include <vector>

#include "model/units.h"

namespace hone {

class ShardMap {
 public:
  // unit_sizes: elements of each unit. piece: elements of a piece, a multiple of param_granule.
  ShardMap(std::vector<int64_t> unit_sizes, size_t ranks, int64_t piece);
  size_t num_units() const { return sizes_.size(); }
  size_t num_ranks() const { return ranks_; }
  // Within the unit; empty if the rank owns nothing of it. Ascending by rank, and together the whole unit.
  ElementRange shard(size_t unit, size_t rank) const;
  // The pieces of a shard, counted within the unit.
  ElementRange pieces(size_t unit, size_t rank) const;
  int64_t num_pieces(size_t unit) const;
  int64_t owned_elements(size_t rank) const;  // of all units
  int64_t owned_pieces(size_t rank) const;

 private:
  std::vector<int64_t> sizes_;
  size_t ranks_;
  int64_t piece_;
};

}  // namespace hone
