#pragma once
// A checkpoint of several ranks: each writes the parts of the state that it alone has.
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "core/comm/ranks.h"
#include "core/io/checkpoint.h"

namespace hone {

// Saves as save_checkpoint() does. Every rank writes its part of the sections that are named in `shared`; rank 0 writes
// the other sections and calls fill(). One rank writes the files of save_checkpoint(). If a rank fails, the checkpoint
// is not written, and every rank throws an AgreedError with that rank's message.
void save_on_ranks(const Ranks& ranks, const CheckpointWriter& writer, int keep_last,
                   const std::function<void(const std::filesystem::path&)>& fill,
                   const std::map<std::string, const Stateful*>& sections, const std::set<std::string>& shared);

}  // namespace hone
