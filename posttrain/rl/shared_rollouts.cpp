#include "posttrain/rl/shared_rollouts.h"

#include <cstring>

namespace hone {

// The bytes: the length of a JSON header as u64; the header {"groups": as in checkpoints, "tensors": name, dtype and
// number of elements of each}; the tensors' data, each at a multiple of 8 bytes.
std::string pack_groups(std::span<const Group> groups) {
  GroupStateWriter writer;
  JsonArray listed, tensors;
  for (const Group& group : groups) listed.push_back(writer.add(group));
  StateSection section;
  writer.save(section);
  for (const NamedTensor& named : section.tensors)
    tensors.push_back(JsonObject{
        {"name", named.name}, {"dtype", static_cast<int64_t>(named.tensor.dtype)}, {"count", named.tensor.size()}});
  const std::string header = Json(JsonObject{{"groups", std::move(listed)}, {"tensors", std::move(tensors)}}).dump();
  const uint64_t length = header.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  out += header;
  for (const NamedTensor& named : section.tensors) {
    out.resize((out.size() + 7) / 8 * 8);
    if (named.tensor.bytes() > 0) out.append(static_cast<const char*>(named.tensor.data), named.tensor.bytes());
  }
  return out;
}

std::vector<Group> unpack_groups(std::string_view bytes, const TaskSchedule& tasks) {
  uint64_t length = 0;
  HONE_CHECK(bytes.size() >= sizeof length, "rollout batch: ", bytes.size(), " bytes are no batch");
  std::memcpy(&length, bytes.data(), sizeof length);
  HONE_CHECK(length <= bytes.size() - sizeof length, "rollout batch: its header has ", length, " bytes, ", bytes.size(),
             " arrived");
  const Json header = parse_json(bytes.substr(sizeof length, length), "rollout batch");
  StateSection section;
  std::vector<std::vector<uint64_t>> storage;  // aligned copies; a moved vector keeps its memory
  size_t at = sizeof length + length;
  for (const Json& tensor : header.at("tensors").as_array("tensors")) {
    at = (at + 7) / 8 * 8;
    const int64_t count = tensor.at("count").as_int("count"), dtype = tensor.at("dtype").as_int("dtype");
    HONE_CHECK(count >= 0 && count <= std::ssize(bytes), "rollout batch: a tensor of ", count, " elements");
    auto& words = storage.emplace_back();
    Tensor view(nullptr, static_cast<DType>(dtype), DeviceKind::cpu, {count});
    HONE_CHECK(at <= bytes.size() && view.bytes() <= bytes.size() - at, "rollout batch: a tensor of ", view.bytes(),
               " bytes at ", at, " of ", bytes.size());
    words.resize((view.bytes() + 7) / 8);
    if (view.bytes() > 0) std::memcpy(words.data(), bytes.data() + at, view.bytes());
    view.data = words.data();
    at += view.bytes();
    section.tensors.push_back({tensor.at("name").as_string("name"), view});
  }
  GroupStateReader reader(section, [&](const std::string& id) -> const Task& { return tasks.task(id); });
  std::vector<Group> out;
  for (const Json& group : header.at("groups").as_array("groups")) out.push_back(reader.next(group));
  return out;
}

RolloutQueue::NextBatch SharedRollouts::next(int64_t step) {
  if (ranks_.size() == 1) return queue_->next(step);
  RolloutQueue::NextBatch out;
  const std::string bytes = ranks_.on_first(concat("rollouts of step ", step + 1), [&] {
    out = queue_->next(step);
    return pack_groups(out.groups);
  });
  if (!ranks_.is_first()) out.groups = unpack_groups(bytes, tasks_);
  return out;
}

void SharedRollouts::return_batch() {
  if (queue_) queue_->return_batch();
}

}  // namespace hone
