// Training on pairs of a chosen and a rejected completion. The reference is the model as it was when the stage began.
#include "posttrain/offline.h"
#include "posttrain/preference_data.h"

namespace hone {
namespace {

class Preference : public OfflineStage<PreferenceSource> {
 public:
  Preference() : OfflineStage({"dpo", 16, "pairs", 1e-6}, 2) {}

 protected:
  std::string part_name(const Sample&, size_t i) const override { return i == 0 ? "chosen" : "rejected"; }
  std::vector<Group> load(const PreferenceSource& source, const Tokenizer& tokenizer) const override {
    return load_preferences(source, tokenizer);
  }
};

[[maybe_unused]] const bool added = stages().add("preference", [] { return std::unique_ptr<Stage>(new Preference); });

}  // namespace
}  // namespace hone
