#include "train/parallel/shard_map.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(ShardMap, EveryElementHasOneOwnerAndBordersArePieces) {
  for (const size_t ranks : {1u, 2u, 3u, 7u}) {
    const ShardMap map({0, 64, 640, 129, 5000}, ranks, 64);
    int64_t elements = 0, pieces = 0;
    for (size_t unit = 0; unit < map.num_units(); ++unit) {
      int64_t at = 0, piece = 0;
      for (size_t r = 0; r < ranks; ++r) {
        const ElementRange own = map.shard(unit, r), counted = map.pieces(unit, r);
        EXPECT_EQ(own.first, at);
        EXPECT_EQ(counted.first, piece);
        EXPECT_EQ(own.first % 64 == 0 || own.size() == 0, true);
        at = own.last;
        piece = counted.last;
      }
      EXPECT_EQ(at, (std::vector<int64_t>{0, 64, 640, 129, 5000})[unit]);
      EXPECT_EQ(piece, map.num_pieces(unit));
    }
    for (size_t r = 0; r < ranks; ++r) {
      elements += map.owned_elements(r);
      pieces += map.owned_pieces(r);
    }
    EXPECT_EQ(elements, 5833);
    EXPECT_EQ(pieces, 0 + 1 + 10 + 3 + 79);
  }
  EXPECT_THROW(ShardMap({64}, 2, 100), Error);
}

}  // namespace
}  // namespace hone
