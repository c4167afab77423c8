#pragma once
// Order of training data: a counter-based permutation, so that position is (epoch, index): two integers.
#include <cstdint>
#include <vector>

#include "core/io/checkpoint.h"

namespace hone {

// A bijection of [0, count) keyed by (seed, epoch) (a cycle-walking Feistel network): no table, any size.
class Permutation {
 public:
  Permutation(uint64_t count, uint64_t seed, uint64_t epoch);
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t count_, keys_[4];
  int bits_;
};

// Indices 0..count-1 in a new order each epoch (or in file order).
class IndexLoader : public Stateful {
 public:
  // count 0 (an empty dataset) is an Error.
  IndexLoader(int64_t count, uint64_t seed, bool shuffle = true);
  int64_t next();
  int64_t epoch() const { return epoch_; }  // of the last index given
  int64_t num_given() const { return epoch_ * count_ + index_; }
  int64_t count() const { return count_; }
  double epochs_done() const {
    return static_cast<double>(epoch_) + static_cast<double>(index_) / static_cast<double>(count_);
  }
  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  int64_t count_, epoch_ = 0, index_ = 0;
  uint64_t seed_;
  bool shuffle_;
};

}  // namespace hone
