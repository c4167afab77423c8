#pragma once
// N ranks written out by hand, one after another in one thread, from the parts that a trainer consists of. Micro-batch
// i runs on the model of rank i mod N, its gradient from zero. The gradients are added in order, every shard on its
// own. Each rank's optimizer updates its shards, and the weights are copied to all models. The result must equal a
// Trainer's, byte for byte.
#include <cstring>

#include "core/config/config.h"
#include "tests/train/rig.h"
#include "train/micro_batch_runner.h"
#include "train/optim/state_parts.h"
#include "train/param_update.h"
#include "train/step_exchange.h"
#include "train/step_plan.h"

namespace hone::test {

class HandRanks {
 public:
  HandRanks(size_t num_ranks, const TrainerConfig& config, const Json& model_config, const LoraConfig& lora)
      : config_(config) {
    for (size_t r = 0; r < num_ranks; ++r) {
      models_.push_back(make_tiny(context_, model_config, true, lora));
      runners_.push_back(std::make_unique<MicroBatchRunner>(context_, *models_.back(), config_, phases_));
    }
    attach_shards();
  }

  struct Report {
    double loss = 0, grad_norm = 0;
    Metrics metrics;
  };

  Report step(std::span<const Sample* const> samples, const Objective& objective, double learning_rate) {
    const StepPlan plan = plan_step(samples, objective, config_, models_.front()->shape(), cost_of(*models_.front()));
    if (objective.needs().critic && !critic_)
      critic_ = std::make_unique<Critic>(context_, *models_.front(), config_.critic, config_.recomputation(),
                                         config_.optimizer->make(), one_rank_, config_.norm_piece);
    Report report;
    MetricSums metrics;
    phases_.begin();
    std::ranges::fill(sum_, 0.0f);
    critic_sum_.clear();
    num_folded_ = 0;
    for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
      MetricSums own;
      report.loss += run(plan, i, objective, own);
      metrics.merge(MetricSums::from_bytes(own.to_bytes()));
    }
    for (size_t i = 0; i < plan.idle_micro_batches.size(); ++i) {
      const MicroBatch& micro = plan.idle_micro_batches[i];
      MicroBatchData data;
      data.fill(std::span(plan.idle).subspan(micro.begin, micro.end - micro.begin));
      MetricSums own;
      runners_[(plan.micro_batches.size() + i) % runners_.size()]->measure(data, objective, plan.scale, own);
      metrics.merge(own);
    }
    report.metrics = metrics.means();
    update(report, learning_rate);
    return report;
  }

  Model& model() { return *models_.front(); }
  Critic* critic() { return critic_.get(); }
  StateSection optimizer_state() const {
    StateSection out;
    for (const auto& optimizer : optimizers_) optimizer->save_state(out);
    return out;
  }

 private:
  // Deals the pieces of every unit to the ranks. Each part's gradient lies in sum_, which has flat_grads()'s layout.
  void attach_shards() {
    Model& first = *models_.front();
    sum_.resize(static_cast<size_t>(first.flat_grads().size()));
    std::vector<std::vector<ParamPart>> parts(models_.size());
    size_t turn = 0;
    for (const Unit& unit : units_of(first, DeviceKind::cpu)) {
      int64_t at = unit.grads.first;
      for (int64_t begin = unit.grads.first; begin < unit.grads.last; begin += config_.norm_piece)
        shards_.push_back({begin, std::min(begin + config_.norm_piece, unit.grads.last)});
      for (const Param* param : unit.trained) {
        const int64_t count = param->num_elements();
        for (int64_t from = 0; from < count;) {
          const int64_t place = at + from, piece = (place - unit.grads.first) / config_.norm_piece,
                        end = std::min(count, unit.grads.first + (piece + 1) * config_.norm_piece - at);
          const Tensor grad =
              host_view(std::span(sum_).subspan(static_cast<size_t>(place), static_cast<size_t>(end - from)));
          parts[(turn + static_cast<size_t>(piece)) % parts.size()].push_back(
              {.param = param,
               .first = from,
               .value = param->value.view({count}).rows(from, end - from),
               .grad = grad,
               .place = place});
          from = end;
        }
        at += param->padded_elements();
      }
      ++turn;
    }
    for (const std::vector<ParamPart>& own : parts) {
      optimizers_.push_back(config_.optimizer->make());
      optimizers_.back()->attach(context_, own);
    }
  }

  double run(const StepPlan& plan, size_t index, const Objective& objective, MetricSums& metrics) {
    const PlannedMicroBatch& micro = plan.micro_batches[index];
    Model& model = *models_[index % models_.size()];
    MicroBatchRunner& runner = *runners_[index % models_.size()];
    const MicroBatchPosition place{
        .step = steps_, .first_sample = static_cast<int64_t>(micro.begin), .first_token = micro.first_token};
    MicroBatchData data;
    data.fill(plan.samples_of(micro));
    model.zero_grad(context_);
    const uint8_t active = 1;
    if (critic_) {
      critic_->params().gradients().begin_step(1);
      critic_->params().gradients().begin_round({&active, 1});
    }
    double loss = 0;
    if (objective.needs().loss_linear_in_logp) {
      std::vector<float> logp(static_cast<size_t>(micro.num_rows)), hit = logp;
      const bool hits = objective.needs().token_accuracy;
      runner.queue_static_grad(data, objective, plan.scale, place, host_view(std::span(logp)),
                               hits ? host_view(std::span(hit)) : Tensor());
      runner.read_rows(data, host_view(std::span(logp)), data.logp);
      loss = runner.evaluate(data, objective, plan.scale, metrics);
      if (hits) runner.add_token_accuracy(host_view(std::span(hit)), metrics);
    } else {
      loss = runner.run(data, objective, plan.scale, place, critic_.get(), metrics);
    }
    if (micro.active()) fold(model);
    return loss;
  }

  // sum = sum + the model's gradients; the first micro-batch's are copied.
  void fold(Model& model) {
    const auto add = [&](std::span<float> sum, std::span<const float> grads) {
      for (size_t i = 0; i < grads.size(); ++i) sum[i] = num_folded_ == 0 ? grads[i] : sum[i] + grads[i];
    };
    add(sum_, model.flat_grads().as<float>());
    if (critic_) {
      const std::vector<ParamPart> parts = critic_->params().gradients().parts();
      critic_sum_.resize(parts.size());
      for (size_t p = 0; p < parts.size(); ++p) {
        critic_sum_[p].resize(static_cast<size_t>(parts[p].grad.size()));
        add(critic_sum_[p], parts[p].grad.as<float>());
      }
    }
    ++num_folded_;
  }

  void update(Report& report, double learning_rate) {
    std::vector<double> pieces, critic_pieces;
    for (const ElementRange& shard : shards_) {  // each by its owner
      double& piece = pieces.emplace_back();
      const std::span<float> grads =
          std::span(sum_).subspan(static_cast<size_t>(shard.first), static_cast<size_t>(shard.size()));
      sum_squares(context_, host_view(std::span(&piece, 1)), host_view(grads), config_.norm_piece);
    }
    if (critic_) {
      critic_->params().gradients().begin_step(1);
      critic_->params().gradients().end_rounds();
      const std::vector<ParamPart> parts = critic_->params().gradients().parts();
      for (size_t p = 0; p < parts.size() && !critic_sum_.empty(); ++p)
        std::ranges::copy(critic_sum_[p], parts[p].grad.as<float>().begin());
      critic_pieces.resize(static_cast<size_t>(critic_->params().gradients().num_pieces()));
      critic_->params().gradients().square_pieces(host_view(std::span(critic_pieces)));
      if (!critic_->separate()) pieces.insert(pieces.end(), critic_pieces.begin(), critic_pieces.end());
    }
    float clip = 0, norm = 0, critic_clip = 0, critic_norm = 0;
    clip_from(pieces, clip, norm);
    report.grad_norm = norm;
    ++steps_;
    for (const auto& optimizer : optimizers_)
      optimizer->update(context_, host_view(std::span(&clip, 1)), steps_, learning_rate);
    for (size_t r = 1; r < models_.size(); ++r) context_.copy(models_[r]->flat_values(), models_[0]->flat_values());
    if (!critic_) return;
    if (critic_->separate()) {
      clip_from(critic_pieces, critic_clip, critic_norm);
      report.metrics["critic/grad_norm"] = critic_norm;
    } else {
      critic_clip = clip;
    }
    critic_->update({host_view(std::span(&critic_clip, 1)), {}}, steps_, learning_rate);
  }

  void clip_from(std::vector<double>& pieces, float& clip, float& norm) {
    double sum = 0;
    sum_pieces(context_, host_view(std::span(&sum, 1)), host_view(std::span(pieces)));
    clip_factor(context_, host_view(std::span(&clip, 1)), host_view(std::span(&norm, 1)), host_view(std::span(&sum, 1)),
                static_cast<float>(config_.max_grad_norm));
  }

  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
  StepExchange one_rank_;
  TrainerConfig config_;
  PhaseTimer phases_{context_};
  std::vector<std::unique_ptr<Model>> models_;
  std::vector<std::unique_ptr<MicroBatchRunner>> runners_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::unique_ptr<Critic> critic_;
  std::vector<ElementRange> shards_;  // pieces of the norm, in order
  std::vector<float> sum_;            // the gradient of the step
  std::vector<std::vector<float>> critic_sum_;
  int64_t steps_ = 0, num_folded_ = 0;
};

// A training run that is compared: `samples` of each step.
struct RunCase {
  std::string name;
  TrainerConfig config = {};
  Json model = tiny_config("llama");
  LoraConfig lora = {};
};

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// Trains with a Trainer and with `num_ranks` ranks by hand; samples_of(step) gives the samples.
template <class SamplesOf>
void expect_ranks_equal_one(size_t num_ranks, const RunCase& run, const Objective& objective, SamplesOf samples_of) {
  SCOPED_TRACE(concat(run.name, ", ", num_ranks, " ranks"));
  const std::unique_ptr<Device> device = cpu_device();
  Context context(*device);
  const std::unique_ptr<Model> model = make_tiny(context, run.model, true, run.lora);
  Trainer trainer(context, *model, run.config);
  HandRanks ranks(num_ranks, run.config, run.model, run.lora);
  for (int step = 0; step < 4; ++step) {
    const std::vector<Sample> samples = samples_of(step);
    const StepReport one = trainer.step(pointers(samples), objective, 0.01);
    const HandRanks::Report many = ranks.step(pointers(samples), objective, 0.01);
    EXPECT_EQ(one.loss, many.loss) << step;
    EXPECT_EQ(one.grad_norm, many.grad_norm) << step;
    EXPECT_EQ(one.metrics, many.metrics) << step;
  }
  EXPECT_TRUE(same_bytes(model->flat_values(), ranks.model().flat_values()));
  if (ranks.critic()) {
    EXPECT_EQ(trainer.value_head(), ranks.critic()->value_head());
  }
  StateSection whole;
  trainer.save_state(whole);
  const StateSection saved = ranks.optimizer_state();
  const StateParts parts(saved);
  for (const NamedTensor& named : whole.tensors) {
    if (named.name.starts_with("critic.")) continue;
    std::vector<std::byte> bytes(named.tensor.bytes());
    const Tensor copy(bytes.data(), named.tensor.dtype, DeviceKind::cpu, {named.tensor.size()});
    parts.copy(context, named.name, 0, named.tensor.size(), copy);
    EXPECT_TRUE(same_bytes(named.tensor, copy)) << named.name;
  }
}

// Configurations that reach the paths of a step: families, tied heads, recomputation, moments, noise, adapters.
inline std::vector<RunCase> run_cases() {
  const auto small = [] {
    TrainerConfig out;
    out.micro_batch_tokens = 14;
    out.norm_piece = 64;
    return out;
  };
  const auto set = [](TrainerConfig& config, const char* keys) {
    Config::from_text(keys, "test").read([&](Fields& f) { config.fields(f); });
  };
  std::vector<RunCase> out;
  for (const char* family : {"llama", "gpt2", "qwen3"}) out.push_back({family, small(), tiny_config(family)});
  out.push_back({"tied", small(), with(tiny_config("qwen2"), {{"tie_word_embeddings", true}})});
  out.push_back({"whole pieces", small()});
  out.back().config.norm_piece = norm_piece;
  for (const char* recompute : {"selective", "full"}) {
    out.push_back({concat("recompute ", recompute), small()});
    out.back().config.recompute = recompute;
  }
  out.push_back({"bf16 moments, balanced", small()});
  set(out.back().config, "weight_decay = 0.1\nmoments = \"bf16\"\nmicro_batch_tokens = 14");
  out.back().config.micro_batch_multiple = 3;
  out.push_back({"noise, sgd", small()});
  out.back().config.neftune_noise_alpha = 5;
  out.back().config.optimizer = Choice<OptimizerSettings>("sgd");
  out.push_back({"adapters, bf16 moments", small()});
  out.back().lora = {.r = 2, .lora_dropout = 0.1, .target_modules = {"all-linear"}};
  set(out.back().config, "moments = \"bf16\"\nmicro_batch_tokens = 14");
  out.push_back({"adapters of some, tied", small(), with(tiny_config("llama"), {{"tie_word_embeddings", true}})});
  out.back().lora = {.r = 1, .target_modules = {"q_proj", "down_proj"}};
  return out;
}

}  // namespace hone::test
