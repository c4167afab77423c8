#include "data/index_loader.h"

#include <algorithm>
#include <bit>

#include "core/base/rng.h"

namespace hone {
namespace {

// Refuses a state that belongs to other data.
void expect_same(const Json& values, const char* key, int64_t have) {
  const int64_t saved = values.at(key, "loader state").as_int(key);
  HONE_CHECK(saved == have, "loader state: ", key, " was ", saved, " when it was saved, and is ", have,
             " now; the data or the recipe changed");
}

// Half the bits of the smallest even width that holds every index.
int half_width(uint64_t count) {
  const int width = static_cast<int>(std::bit_width(count > 0 ? count - 1 : count));
  return std::max(1, (width + 1) / 2);
}

}  // namespace

Permutation::Permutation(uint64_t count, uint64_t seed, uint64_t epoch) : count_(count), bits_(half_width(count)) {
  const Philox4 low = philox(seed, stream_of("permutation"), 2 * epoch),
                high = philox(seed, stream_of("permutation"), 2 * epoch + 1);
  for (int i = 0; i < 4; ++i) keys_[i] = (uint64_t{high.word[i]} << 32) | low.word[i];
}

uint64_t Permutation::operator()(uint64_t index) const {
  const uint64_t mask = (uint64_t{1} << bits_) - 1;
  // Each round is a bijection of the 2 * bits_ wide domain; walking on until the result lies in [0, count) keeps it one
  // of [0, count).
  do {
    for (const uint64_t key : keys_) {
      const uint64_t left = index >> bits_, right = index & mask;
      index = (right << bits_) | (left ^ (philox(key, 0, right).word[0] & mask));
    }
  } while (index >= count_);
  return index;
}

IndexLoader::IndexLoader(int64_t count, uint64_t seed, bool shuffle) : count_(count), seed_(seed), shuffle_(shuffle) {
  HONE_CHECK(count > 0, "loader: the dataset is empty");
}

int64_t IndexLoader::next() {
  if (index_ == count_) ++epoch_, index_ = 0;
  const auto place = static_cast<uint64_t>(index_++);
  return static_cast<int64_t>(
      shuffle_ ? Permutation(static_cast<uint64_t>(count_), seed_, static_cast<uint64_t>(epoch_))(place) : place);
}

void IndexLoader::save_state(StateSection& section) const {
  section.values.set("count", count_);
  section.values.set("seed", static_cast<int64_t>(seed_));
  section.values.set("epoch", epoch_);
  section.values.set("index", index_);
}

void IndexLoader::load_state(const StateSection& section) {
  expect_same(section.values, "count", count_);
  expect_same(section.values, "seed", static_cast<int64_t>(seed_));
  const int64_t epoch = section.values.at("epoch", "loader state").as_int("epoch"),
                index = section.values.at("index", "loader state").as_int("index");
  HONE_CHECK(epoch >= 0 && index >= 0 && index <= count_, "loader state: epoch ", epoch, ", index ", index, " of ",
             count_, " is no position");
  epoch_ = epoch;
  index_ = index;
}

}  // namespace hone
