#include "posttrain/rl/group_state.h"

#include <algorithm>

#include "core/io/metrics.h"

namespace hone {

Json GroupStateWriter::add(const Group& group) {
  JsonArray samples;
  for (const Sample& sample : group.samples) {
    tokens_.insert(tokens_.end(), sample.tokens.begin(), sample.tokens.end());
    mask_.insert(mask_.end(), sample.mask.begin(), sample.mask.end());
    behavior_logp_.insert(behavior_logp_.end(), sample.behavior_logp.begin(), sample.behavior_logp.end());
    versions_.insert(versions_.end(), sample.versions.begin(), sample.versions.end());
    versions_.resize(tokens_.size(),
                     sample.weight_version);  // a reply that could not be sampled has none, and the reader drops them
    samples.push_back(JsonObject{{"tokens", sample.tokens.size()},
                                 {"reply", sample.completion.ids.size()},
                                 {"text", sample.completion.text},
                                 {"finish_reason", sample.completion.finish_reason},
                                 {"judged", sample.scored},
                                 {"reward", sample.reward},
                                 {"reward_parts", metrics_json(sample.reward_parts)},
                                 {"counts", metrics_json(sample.counts)}});
  }
  return JsonObject{{"task", group.task.id}, {"rendered", group.task.rendered}, {"samples", std::move(samples)}};
}

void GroupStateWriter::save(StateSection& section) const {
  section.tensors.push_back({"groups.tokens", host_view(std::span(tokens_))});
  section.tensors.push_back({"groups.mask", host_view(std::span(mask_))});
  section.tensors.push_back({"groups.behavior_logp", host_view(std::span(behavior_logp_))});
  section.tensors.push_back({"groups.versions", host_view(std::span(versions_))});
}

GroupStateReader::GroupStateReader(const StateSection& section,
                                   std::function<const Task&(const std::string& id)> task_of)
    : section_(section), task_of_(std::move(task_of)) {}

template <class T>
std::vector<T> GroupStateReader::slice(const char* column, size_t count) const {
  const auto found = std::ranges::find_if(section_.tensors, [&](const NamedTensor& t) { return t.name == column; });
  HONE_CHECK(found != section_.tensors.end() && found->tensor.dtype == dtype_of<T>::value, "saved groups: ", column,
             " is missing");
  const std::span<const T> all = found->tensor.template as<T>();
  HONE_CHECK(read_ + count <= all.size(), "saved groups: ", column, " has ", all.size(), " tokens, one at ",
             read_ + count, " is asked for");
  return {all.begin() + static_cast<std::ptrdiff_t>(read_), all.begin() + static_cast<std::ptrdiff_t>(read_ + count)};
}

Group GroupStateReader::next(const Json& saved) {
  const auto count = [](const Json& of, const char* name) {
    const int64_t n = of.at(name, "saved sample").as_int(name);
    HONE_CHECK(n >= 0 && n <= max_sample_length, "saved groups: a sample's ", name, " is ", n);
    return static_cast<size_t>(n);
  };
  Group out;
  out.task = task_of_(saved.at("task", "saved group").as_string("task"));
  out.task.rendered = saved.at("rendered", "saved group").as_string("rendered");
  for (const Json& of : saved.at("samples", "saved group").as_array("samples")) {
    const size_t tokens = count(of, "tokens"), reply = count(of, "reply");
    HONE_CHECK(reply <= tokens, "saved groups: a reply of ", reply, " tokens in a sample of ", tokens);
    Sample& sample = out.samples.emplace_back();
    sample.tokens = slice<int32_t>("groups.tokens", tokens);
    sample.mask = slice<float>("groups.mask", tokens);
    sample.behavior_logp = slice<float>("groups.behavior_logp", tokens);
    sample.versions = slice<int64_t>("groups.versions", tokens);
    read_ += tokens;
    if (reply == 0) sample.versions.clear();
    if (!sample.versions.empty()) sample.weight_version = *std::ranges::min_element(sample.versions);
    sample.completion.ids.assign(sample.tokens.end() - static_cast<std::ptrdiff_t>(reply), sample.tokens.end());
    sample.completion.text = of.at("text", "saved sample").as_string("text");
    sample.completion.finish_reason = of.at("finish_reason", "saved sample").as_string("finish_reason");
    sample.scored = of.at("judged", "saved sample").as_bool("judged");
    sample.reward = of.at("reward", "saved sample").as_double("reward");
    sample.reward_parts = metrics_of(of.at("reward_parts", "saved sample"));
    sample.counts = metrics_of(of.at("counts", "saved sample"));
  }
  return out;
}

}  // namespace hone
