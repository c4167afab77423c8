#pragma once
// Scored groups in a checkpoint's section. Token ids, policy versions and the columns marked `checkpointed` are tensors
// over all samples ("groups.mask"), the rest is JSON.
#include <functional>
#include <string>
#include <vector>

#include "core/io/checkpoint.h"
#include "data/sample.h"

namespace hone {

// Owns the bytes that the section's tensors refer to; it must live until the checkpoint is written.
class GroupStateWriter {
 public:
  // The group's part of the section's values. A checkpointed column that some samples lack is an Error that names it.
  Json add(const Group& group);
  // Adds the columns of all groups.
  void save(StateSection& section) const;

 private:
  void add_columns(const Group& group, const Sample& sample);

  std::vector<int32_t> tokens_;
  Columns columns_;
  std::vector<int64_t> versions_;
  size_t num_samples_ = 0;
};

class GroupStateReader {
 public:
  // task_of(id) throws an Error if the data no longer have the task.
  GroupStateReader(const StateSection& section, std::function<const Task&(const std::string& id)> task_of);
  // The next group, in the order of GroupStateWriter::add.
  Group next(const Json& saved);

 private:
  const NamedTensor* find(const std::string& name) const;
  // Entries [begin, begin + count) of a tensor.
  template <class T>
  std::vector<T> slice(const std::string& name, size_t begin, size_t count) const;
  void read_columns(Sample& sample) const;

  const StateSection& section_;
  std::function<const Task&(const std::string& id)> task_of_;
  size_t tokens_read_ = 0, samples_read_ = 0;
};

}  // namespace hone
