#pragma once
// ControlChannel: host bytes between the ranks of a run, and how they notice that one of them failed or hangs.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/check.h"

namespace hone {

// Thrown on a rank because another one failed, hangs, or is at another call. The message names that rank. It is never
// the cause of a failure: the run reports the other rank's error.
class RankFailed : public Error {
 public:
  using Error::Error;
};

// An error that every rank throws alike, because all of them decided from the same bytes. It ends the run with this
// message and no rank's name.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// One rank's end. One thread. All ranks make the same calls in the same order. Every call waits for the other ranks. It
// throws RankFailed if
// - a rank failed (abort());
// - a rank is at another call: its `what` differs;
// - a rank does not come, and shows no progress for `timeout` seconds: no call, no phase, no note_progress()
//   (core/base/rank_thread.h). The message names the rank and where it is.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "rank 3 (cuda:3)", for messages.
  virtual std::string label() const = 0;
  // Returns the bytes of every rank, in rank order. `what` names the call in messages.
  virtual std::vector<std::string> all_gather(std::string own, const std::string& what) = 0;
  // Says what this rank does until its next call, for the messages of ranks that wait for it.
  virtual void set_phase(const std::string& phase) = 0;
  // Says that this rank's work failed. It will say so at its next call, so that all ranks can stop alike. Ranks that
  // cannot reach that call, because they wait for this one elsewhere, throw RankFailed with this error.
  virtual void note_failure(const std::string& error) = 0;
  // Ends the run: calls of other ranks throw RankFailed with this message, the current ones too. Only the first counts.
  virtual void abort(const std::string& message) = 0;
};

}  // namespace hone
