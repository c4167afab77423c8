#pragma once
// Order of the samples of several sources. Each source has its own permutation per epoch, and one position.
//
// Sample n comes from the source with the smallest (drawn + 0.5) / weight, where `drawn` is the number of samples that
// it gave before (Webster's method; ties go to the first source). The shares follow the weights as closely as whole
// samples allow, at every n, without random numbers. With weights equal to the counts, each epoch of the mixture has
// every sample once.
#include <functional>
#include <string>
#include <vector>

#include "core/io/metrics.h"
#include "data/index_loader.h"

namespace hone {

struct MixturePart {
  std::string name;
  int64_t count = 0;  // samples
  double weight = 0;  // share of the samples relative to the other parts' weights; 0 = count
};

// Indices 0..count-1 of the parts end to end. A single part has the order and the state of an IndexLoader. One thread.
class Mixture : public Stateful {
 public:
  // A part without samples is an Error that names it.
  Mixture(std::vector<MixturePart> parts, uint64_t seed, bool shuffle = true);

  // Returns false for an index that is passed over. The next index is then of the same part, so that shares stay.
  using Accept = std::function<bool(int64_t index, int64_t epoch)>;
  int64_t next(const Accept& accept = nullptr);
  // Epoch of the last index's part.
  int64_t epoch() const { return sources_[last_].order.epoch(); }
  // Indices given or passed over.
  int64_t num_given() const;
  int64_t count() const;
  // epoch/NAME: passes over each part. Empty for a single part.
  Metrics metrics() const;
  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  struct Source {
    MixturePart part;
    IndexLoader order;
    int64_t first;      // index of its first sample
    int64_t drawn = 0;  // indices given
  };
  size_t next_source() const;

  std::vector<Source> sources_;
  size_t last_ = 0;
};

}  // namespace hone
