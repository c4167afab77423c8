#include "posttrain/rl/curriculum.h"

#include <algorithm>

namespace hone {

void CurriculumConfig::fields(Fields& f) {
  f("revisit_epochs", revisit_epochs,
    "epochs for which tasks that are too easy or too hard are set aside; 0 = no curriculum");
  f("easy", easy, "a task is too easy if its running pass rate is this or more");
  f("hard", hard, "a task is too hard if its running pass rate is this or less");
  f("smoothing", smoothing, "weight of the old running pass rate when a new pass rate arrives");
  f("threshold", threshold, "a completion with this reward or more passes");
  f.require("revisit_epochs", revisit_epochs >= 0, "revisit_epochs must be 0 or more");
  f.require("easy", easy <= 1 && easy > hard, "easy must be in (hard, 1]");
  f.require("hard", hard >= 0, "hard must be in [0, easy)");
  f.require("smoothing", smoothing >= 0 && smoothing < 1, "smoothing must be in [0, 1)");
}

Curriculum::Curriculum(const CurriculumConfig& config, int64_t num_tasks) : config_(config) {
  if (config.revisit_epochs == 0) return;
  rates_.assign(static_cast<size_t>(num_tasks), -1);
  epochs_.assign(static_cast<size_t>(num_tasks), 0);
}

int64_t Curriculum::next(Mixture& order) const {
  return order.next([&](int64_t task, int64_t epoch) {
    if (rates_.empty()) return true;
    const auto t = static_cast<size_t>(task);
    return !(easy(t) || hard(t)) || epoch - epochs_[t] >= config_.revisit_epochs;
  });
}

void Curriculum::record(int64_t task, int64_t epoch, double pass_rate) {
  if (rates_.empty()) return;
  const auto t = static_cast<size_t>(task);
  rates_[t] = was_sampled(t) ? config_.smoothing * rates_[t] + (1 - config_.smoothing) * pass_rate : pass_rate;
  epochs_[t] = epoch;
}

Metrics Curriculum::metrics() const {
  if (rates_.empty()) return {};
  double num_easy = 0, num_hard = 0, num_sampled = 0, sum = 0;
  for (size_t t = 0; t < rates_.size(); ++t) {
    num_easy += easy(t);
    num_hard += hard(t);
    if (was_sampled(t)) {
      ++num_sampled;
      sum += rates_[t];
    }
  }
  Metrics out{{"curriculum/active", static_cast<double>(rates_.size()) - num_easy - num_hard},
              {"curriculum/easy", num_easy},
              {"curriculum/hard", num_hard}};
  if (num_sampled > 0) out["curriculum/pass_rate"] = sum / num_sampled;
  return out;
}

void Curriculum::save_state(StateSection& section) const {
  if (rates_.empty()) return;
  section.tensors.push_back({"curriculum.rates", host_view(std::span(rates_))});
  section.tensors.push_back({"curriculum.epochs", host_view(std::span(epochs_))});
}

void Curriculum::load_state(const StateSection& section) {
  if (rates_.empty()) return;
  const auto read = [&](const char* name, auto& column) {
    const auto found = std::find_if(section.tensors.begin(), section.tensors.end(),
                                    [&](const NamedTensor& t) { return t.name == name; });
    HONE_CHECK(found != section.tensors.end(), "curriculum state: ", name, " is missing");
    const Tensor own = host_view(std::span(column));
    HONE_CHECK(found->tensor.dtype == own.dtype && found->tensor.size() == own.size(), "curriculum state: ", name,
               " has ", found->tensor.size(), " entries, there are ", own.size(), " tasks");
    std::copy_n(static_cast<const char*>(found->tensor.data), own.bytes(), static_cast<char*>(own.data));
  };
  read("curriculum.rates", rates_);
  read("curriculum.epochs", epochs_);
}

}  // namespace hone
