#include "train/packing.h"

#include <algorithm>

#include "core/base/check.h"

namespace hone {

void make_micro_batches(std::span<const Sample* const> samples, size_t unit, int64_t max_tokens,
                        std::vector<MicroBatch>& out) {
  HONE_CHECK(samples.size() % unit == 0, "trainer: ", samples.size(), " samples do not make pairs");
  out.clear();
  int64_t tokens = 0;
  for (size_t i = 0; i < samples.size(); i += unit) {
    int64_t next = 0;
    for (size_t j = i; j < i + unit; ++j) next += static_cast<int64_t>(samples[j]->tokens.size());
    if (out.empty() || tokens + next > max_tokens) out.push_back({i, i}), tokens = 0;
    out.back().end = i + unit;
    tokens += next;
  }
}

}  // namespace hone
