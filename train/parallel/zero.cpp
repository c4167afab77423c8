#include "train/parallel/zero.h"

#include <cstring>

#include "train/step_plan.h"

namespace hone {
namespace {

// A result as bytes: the loss, then the sums.
std::string pack(const MicroBatchResult& result) {
  const uint64_t num_sums = result.aux_sums.size();
  std::string out(reinterpret_cast<const char*>(&result.loss), sizeof result.loss);
  out.append(reinterpret_cast<const char*>(&num_sums), sizeof num_sums);
  out.append(reinterpret_cast<const char*>(result.aux_sums.data()), num_sums * sizeof(float));
  return out + result.metrics.to_bytes();
}

MicroBatchResult unpack(std::string_view bytes) {
  MicroBatchResult out;
  uint64_t num_sums = 0;
  const size_t head = sizeof out.loss + sizeof num_sums;
  HONE_CHECK(bytes.size() >= head, "step record: a result of ", bytes.size(), " bytes");
  std::memcpy(&out.loss, bytes.data(), sizeof out.loss);
  std::memcpy(&num_sums, bytes.data() + sizeof out.loss, sizeof num_sums);
  HONE_CHECK(num_sums <= (bytes.size() - head) / sizeof(float), "step record: ", num_sums, " sums in ", bytes.size(),
             " bytes");
  out.aux_sums.resize(num_sums);
  std::memcpy(out.aux_sums.data(), bytes.data() + head, num_sums * sizeof(float));
  out.metrics = MetricSums::from_bytes(bytes.substr(head + num_sums * sizeof(float)));
  return out;
}

}  // namespace

// A difference is found before the exchange of gradients, where it would be a call that does not match.
void ZeroExchange::check_plan(const StepPlan& plan) {
  ControlChannel& control = group_.control();
  std::string own =
      concat(plan.samples.size(), " samples in ", plan.micro_batches.size(), " micro-batches, ", plan.num_tokens,
             " tokens, ", plan.num_trained, " trained on, digest of the tokens ", plan.samples_digest);
  const std::string label = control.label();
  const std::vector<std::string> all = control.all_gather(concat(label, ": ", own), "plan of a step");
  const auto text = [&](size_t r) { return std::string_view(all[r]).substr(all[r].find(": ") + 2); };
  for (size_t r = 1; r < all.size(); ++r)
    if (text(r) != text(0))
      throw AgreedError(concat(all[r].substr(0, all[r].find(": ")), " disagrees with rank 0 about a step: it has ",
                               text(r), "; rank 0 has ", text(0)));
}

std::unique_ptr<GradientSum> ZeroExchange::make_gradient_sum(Context& context, Model* model,
                                                             std::vector<GradUnit> units, int64_t piece) {
  if (stage_ == 1) return make_zero1(context, std::move(units), piece, group_);
  if (stage_ == 3 && model) return make_zero3(context, *model, std::move(units), piece, group_);
  return make_zero2(context, std::move(units), piece, group_);
}

std::unique_ptr<StepExchange> make_exchange(const Ranks& ranks, int64_t stage) {
  return ranks.group() ? std::make_unique<ZeroExchange>(*ranks.group(), stage) : nullptr;
}

// The record of a rank: for each of its results, the number of bytes and the bytes.
void ZeroExchange::fold(std::span<MicroBatchResult> results) {
  std::string own;
  for (size_t i = rank(); i < results.size(); i += size()) {
    const std::string bytes = pack(results[i]);
    const uint64_t count = bytes.size();
    own.append(reinterpret_cast<const char*>(&count), sizeof count);
    own += bytes;
  }
  const std::vector<std::string> records = group_.control().all_gather(std::move(own), "step record");
  for (size_t r = 0; r < records.size(); ++r) {
    std::string_view left = records[r];
    for (size_t i = r; i < results.size(); i += size()) {
      uint64_t count = 0;
      HONE_CHECK(left.size() >= sizeof count, "step record: rank ", r, " has too few results");
      std::memcpy(&count, left.data(), sizeof count);
      left.remove_prefix(sizeof count);
      HONE_CHECK(count <= left.size(), "step record: rank ", r, " sends ", left.size(), " bytes of ", count);
      if (r != rank()) results[i] = unpack(left.substr(0, count));
      left.remove_prefix(count);
    }
    HONE_CHECK(left.empty(), "step record: rank ", r, " has ", left.size(), " bytes too many: it has another plan");
  }
}

}  // namespace hone
