// hone objective: a loss and its gradient for given numbers.
#include "train/objective.h"

#include <cstdio>

#include "cli/command.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "train/json/objective_json.h"

namespace hone {
namespace {

class ObjectiveCommand : public Command {
 public:
  std::string summary() const override {
    return "compute a loss and its gradient for given numbers, to compare with another framework";
  }
  std::string example() const override { return "hone objective grpo --in batch.json"; }
  void arguments(Arguments& a) override {
    a.positional("name", name_, "name of the objective (hone list objectives)");
    a.option("in", in_,
             "file with one JSON object: logp, behavior_logp, reference_logp, entropy, mask, rewards (one number a "
             "sequence, or a list of numbers for several) with reward_weights, or advantages; group_size, config",
             true);
  }
  int run() override {
    HONE_CHECK(objectives().contains(name_), objectives().unknown(name_));
    const std::string path = expand_path(in_);
    std::printf("%s\n", evaluate_objective(name_, parse_json(read_file(path), path), path).dump().c_str());
    return 0;
  }

 private:
  std::string name_, in_;
};

[[maybe_unused]] const bool added =
    commands().add("objective", [] { return std::unique_ptr<Command>(new ObjectiveCommand); });

}  // namespace
}  // namespace hone
