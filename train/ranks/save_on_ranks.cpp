#include "train/ranks/save_on_ranks.h"

namespace hone {
namespace {

// Calls work() on every rank. Returns the message of the first rank on which it failed, or "".
std::string first_failure(const Ranks& ranks, const std::string& what, const std::function<void()>& work) {
  std::string own;
  ranks.set_phase(what);
  try {
    work();
  } catch (const RankFailed&) {
    throw;
  } catch (const std::exception& error) {  // told to all ranks
    own = ranks.size() == 1 ? error.what() : concat(ranks.label(), ": ", error.what());
  }
  for (std::string& one : ranks.all_gather(std::move(own), what))
    if (!one.empty()) return std::move(one);
  return "";
}

}  // namespace

void save_on_ranks(const Ranks& ranks, const CheckpointWriter& writer, int keep_last,
                   const std::function<void(const std::filesystem::path&)>& fill,
                   const std::map<std::string, const Stateful*>& sections, const std::set<std::string>& shared) {
  const std::string name = writer.folder().filename();
  ranks.do_on_first("beginning checkpoint " + name, [&] { writer.begin(); });
  const std::string failure = first_failure(ranks, "writing checkpoint " + name, [&] {
    if (ranks.is_first()) fill(writer.temporary());
    for (const auto& [section, owner] : sections)
      if (shared.contains(section))
        writer.write_section(section, *owner, {.index = ranks.rank(), .count = ranks.size()});
      else if (ranks.is_first())
        writer.write_section(section, *owner);
  });
  ranks.do_on_first("completing checkpoint " + name, [&] {
    if (!failure.empty()) writer.give_up(failure);
    try {
      writer.commit(keep_last);
    } catch (const std::exception& error) {  // becomes the cause
      writer.give_up(error.what());
    }
  });
}

}  // namespace hone
