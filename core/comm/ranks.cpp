#include "core/comm/ranks.h"

#include <algorithm>

namespace hone {

std::string Ranks::label() const { return group_ ? group_->control().label() : "rank 0"; }

std::vector<std::string> Ranks::all_gather(std::string own, const std::string& what) const {
  if (!group_) return {std::move(own)};
  return group_->control().all_gather(std::move(own), what);
}

void Ranks::set_phase(const std::string& phase) const {
  if (group_) group_->control().set_phase(phase);
}

void Ranks::note_failure(const std::string& error) const {
  if (group_) group_->control().note_failure(error);
}

std::string Ranks::on_first(const std::string& what, const std::function<std::string()>& work) const {
  if (!group_) return work();
  // The first byte says what follows: a result or an error.
  std::string own;
  if (is_first()) {
    set_phase(what);
    try {
      own = "+" + work();
    } catch (const RankFailed&) {
      throw;
    } catch (const std::exception& error) {  // thrown by every rank below
      own = concat("-", error.what());
    }
  }
  const std::string result = std::move(all_gather(std::move(own), what).front());
  if (result.starts_with('-')) throw AgreedError(result.substr(1));
  return result.substr(1);
}

void Ranks::do_on_first(const std::string& what, const std::function<void()>& work) const {
  on_first(what, [&] {
    work();
    return std::string();
  });
}

bool Ranks::any(bool fact, const std::string& what) const {
  const std::vector<std::string> facts = all_gather(fact ? "1" : "0", what);
  return std::ranges::find(facts, "1") != facts.end();
}

}  // namespace hone
