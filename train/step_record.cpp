#include "train/step_record.h"

#include <algorithm>
#include <bit>

#include "core/io/json.h"

namespace hone {
namespace {

// Numbers are sent as their bits: JSON has no NaN.
std::string text_of(const StepRecord& record, const std::string& label) {
  return Json(JsonObject{{"label", label},
                         {"step", record.step},
                         {"loss", std::bit_cast<int64_t>(record.loss)},
                         {"grad_norm", std::bit_cast<int64_t>(record.grad_norm)},
                         {"num_tokens", record.num_tokens},
                         {"samples_digest", static_cast<int64_t>(record.samples_digest)},
                         {"weights_digest", static_cast<int64_t>(record.weights_digest)},
                         {"loader", record.loader},
                         {"passes", std::bit_cast<int64_t>(record.passes)},
                         {"interrupted", record.interrupted},
                         {"save_due", record.save_due},
                         {"changed_weights", record.changed_weights},
                         {"error", record.error}})
      .dump();
}

StepRecord record_of(const Json& json) {
  return {.step = json.at("step").as_int(),
          .loss = std::bit_cast<double>(json.at("loss").as_int()),
          .grad_norm = std::bit_cast<double>(json.at("grad_norm").as_int()),
          .num_tokens = json.at("num_tokens").as_int(),
          .samples_digest = static_cast<uint64_t>(json.at("samples_digest").as_int()),
          .weights_digest = static_cast<uint64_t>(json.at("weights_digest").as_int()),
          .loader = json.at("loader").as_string(),
          .passes = std::bit_cast<double>(json.at("passes").as_int()),
          .interrupted = json.at("interrupted").as_bool(),
          .save_due = json.at("save_due").as_bool(),
          .changed_weights = json.at("changed_weights").as_bool(),
          .error = json.at("error").as_string()};
}

// The first value that differs: "the loss is 2.5, rank 0 has 2.25". Empty if all are equal. The causes come first.
std::string difference(const StepRecord& one, const StepRecord& first) {
  const auto differs = [](const char* what, const auto& here, const auto& there) {
    return concat("the ", what, " is ", here, ", rank 0 has ", there);
  };
  if (one.step != first.step) return differs("step", one.step, first.step);
  if (one.loader != first.loader) return differs("position in the data", one.loader, first.loader);
  if (one.num_tokens != first.num_tokens) return differs("number of tokens", one.num_tokens, first.num_tokens);
  if (one.samples_digest != first.samples_digest)
    return differs("digest of the samples' tokens", one.samples_digest, first.samples_digest);
  if (one.weights_digest != first.weights_digest)
    return differs("digest of some weights before the step", one.weights_digest, first.weights_digest);
  if (std::bit_cast<int64_t>(one.loss) != std::bit_cast<int64_t>(first.loss))
    return differs("loss", Json(one.loss).dump(), Json(first.loss).dump());
  if (std::bit_cast<int64_t>(one.grad_norm) != std::bit_cast<int64_t>(first.grad_norm))
    return differs("gradient norm", Json(one.grad_norm).dump(), Json(first.grad_norm).dump());
  return "";
}

std::string error_of(const std::vector<StepRecord>& records, const std::vector<std::string>& labels) {
  const auto failed = [](const StepRecord& record) { return !record.error.empty(); };
  if (std::ranges::all_of(records, failed)) return records.front().error;
  const auto first = std::ranges::find_if(records, failed);
  if (first == records.end()) return "";
  return concat(labels[static_cast<size_t>(first - records.begin())], ": ", first->error);
}

}  // namespace

StepDecision exchange_records(const Ranks& ranks, const StepRecord& own) {
  if (ranks.size() == 1)
    return {.stop = own.interrupted,
            .save = own.save_due,
            .error = own.error,
            .is_consistent = own.error.empty() || !own.changed_weights,
            .passes = {own.passes}};
  std::vector<StepRecord> records;
  std::vector<std::string> labels;
  for (const std::string& text : ranks.all_gather(text_of(own, ranks.label()), concat("step ", own.step))) {
    const Json json = parse_json(text, "step record");
    records.push_back(record_of(json));
    labels.push_back(json.at("label").as_string());
  }
  StepDecision out{.save = records.front().save_due, .error = error_of(records, labels)};
  for (const StepRecord& record : records) {
    out.passes.push_back(record.passes);
    out.stop = out.stop || record.interrupted;
    if (!out.error.empty() && (record.error.empty() || record.changed_weights)) out.is_consistent = false;
  }
  if (!out.error.empty()) return out;
  for (size_t r = 1; r < records.size(); ++r)
    if (const std::string found = difference(records[r], records.front()); !found.empty())
      throw AgreedError(concat(labels[r], " disagrees with rank 0 at step ", own.step, ": ", found));
  return out;
}

}  // namespace hone
