#pragma once
// Judged groups in a checkpoint's section: what is there once a token (ids, mask, log-prob, version) as tensors over
// all samples, the rest as JSON.
#include <functional>
#include <string>
#include <vector>

#include "core/io/checkpoint.h"
#include "data/sample.h"

namespace hone {

// Keeps the bytes that the section's tensors show: until the checkpoint is written.
class GroupStateWriter {
 public:
  // The group's part of the section's values.
  Json add(const Group& group);
  // Adds the columns of all groups.
  void save(StateSection& section) const;

 private:
  std::vector<int32_t> tokens_;
  std::vector<float> mask_, behavior_logp_;
  std::vector<int64_t> versions_;
};

class GroupStateReader {
 public:
  // task_of(id): an Error where the data have no such task any more.
  GroupStateReader(const StateSection& section, std::function<const Task&(const std::string& id)> task_of);
  // Groups in the order they were added in.
  Group next(const Json& saved);

 private:
  template <class T>
  std::vector<T> slice(const char* column, size_t count) const;

  const StateSection& section_;
  std::function<const Task&(const std::string& id)> task_of_;
  size_t read_ = 0;  // tokens
};

}  // namespace hone
