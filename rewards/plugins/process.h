#pragma once
// ProcessReward: a reward that a pool of processes computes (kind = "process"), and the base of other kinds that start
// processes.
#include <memory>
#include <string>
#include <vector>

#include "rewards/plugins/calls.h"
#include "rewards/plugins/process_pool.h"

namespace hone {

class ProcessReward : public Reward {
 public:
  void fields(Fields& f) override;
  void prepare() override;
  RewardScore score(const Task& task, const Completion& completion) const override;
  void score_group(const Task& task, std::span<const Completion> completions,
                   std::span<RewardScore> scores) const override;
  // Starts a process.
  void check(const RewardTrial& trial) const override;
  int64_t concurrency() const override { return calls_.workers; }

 protected:
  void shared_fields(Fields& f);
  // Returns the command to start. Throws an Error if the settings are invalid. Processes start with the first
  // completion.
  virtual ProcessCommand command() const;
  // The options of the first line when a process is only tried.
  virtual Json trial_options(const RewardTrial&) const { return command().options; }

 private:
  std::vector<std::string> command_;
  std::string options_;
  double start_timeout_ = 120;
  PluginCalls calls_;
  std::unique_ptr<ProcessPool> pool_;
};

}  // namespace hone
