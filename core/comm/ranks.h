#pragma once
// Ranks: what a part of a run knows about the ranks that do it together. Every rank runs the same code; rank 0 alone
// writes files and logs.
#include <functional>
#include <string>
#include <vector>

#include "core/comm/process_group.h"

namespace hone {

// A view; the group outlives it. Ranks must make the same calls in the same order, and so must decide what to call from
// what all of them know.
class Ranks {
 public:
  Ranks() = default;  // one rank: every call returns at once
  explicit Ranks(ProcessGroup& group) : group_(&group) {}
  int rank() const { return group_ ? group_->rank() : 0; }
  int size() const { return group_ ? group_->size() : 1; }
  bool is_first() const { return rank() == 0; }
  ProcessGroup* group() const { return group_; }  // null: one rank
  // "rank 3 (cuda:3)".
  std::string label() const;

  // ControlChannel's.
  std::vector<std::string> all_gather(std::string own, const std::string& what) const;
  void set_phase(const std::string& phase) const;
  void note_failure(const std::string& error) const;
  // Calls work() on rank 0 alone, and returns its result on every rank. If it throws, every rank throws an AgreedError
  // with its message; one rank throws the exception itself.
  std::string on_first(const std::string& what, const std::function<std::string()>& work) const;
  // The same for work without a result.
  void do_on_first(const std::string& what, const std::function<void()>& work) const;
  // True if the fact holds on any rank.
  bool any(bool fact, const std::string& what) const;

 private:
  ProcessGroup* group_ = nullptr;
};

}  // namespace hone
