// Collector::PendingGroups: trajectories from their prompts to scored groups.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/log.h"
#include "posttrain/rl/collector.h"
#include "posttrain/rl/group_bytes.h"

namespace hone {

Collector::PendingGroups::~PendingGroups() {
  for (const std::optional<uint64_t>& ticket : tickets_)
    if (ticket) collector_.sampler_.cancel(*ticket);
  for (const std::vector<Member>& members : members_)
    for (const Member& member : members)
      if (member.ticket) collector_.sampler_.cancel(*member.ticket);
}

bool Collector::PendingGroups::is_stale(const CompletionOutput& completion) const {
  return std::ranges::any_of(completion.versions, [this](int64_t version) { return version < oldest_version_; });
}

void Collector::PendingGroups::count_failed(const Group& group, const CompletionOutput& completion) {
  if (!completion.failed) return;
  ++failed_;
  if (!std::exchange(collector_.warned_, true))
    log::warning("rollout: ", group.task.id, ": ", completion.finish_reason);
}

// ---- Trajectories of one turn

void Collector::PendingGroups::ask(size_t i) {
  GenerationRequest& request = requests_[i];
  if (request.prompt.empty()) {
    TrajectoryEncoder& encoder = collector_.encoder_of(groups_[i].task);
    TrajectoryMessages messages;
    request.prompt = encoder.prompt(groups_[i].task, {}, messages);
    request.n = collector_.config_.num_generations;
    request.sampling = collector_.config_.sampling;
    for (const int32_t id : encoder.stop_ids(messages)) request.sampling.stop_ids.push_back(id);
  }
  tickets_[i] = collector_.sampler_.submit(
      request, [this, i](uint64_t, std::vector<CompletionOutput> completions) { answer(i, std::move(completions)); });
}

void Collector::PendingGroups::answer(size_t i, std::vector<CompletionOutput> completions) {
  tickets_[i].reset();
  if (std::ranges::any_of(completions, [this](const CompletionOutput& one) { return is_stale(one); })) {
    asked_again_ += std::ssize(completions);
    stale_.push_back(i);
    return;
  }
  Group& group = groups_[i];
  HONE_CHECK(completions.size() == group.samples.size(), "collector: a request for ", group.samples.size(),
             " completions got ", completions.size());
  for (size_t m = 0; m < completions.size(); ++m) {
    count_failed(group, completions[m]);
    group.samples[m] = to_training_sample(requests_[i], std::move(completions[m]));
  }
  missing_ -= std::ssize(group.samples);
  complete_group(i);
}

// ---- Trajectories in an environment

void Collector::PendingGroups::play(size_t i, size_t m) {
  members_[i][m] = {};
  const uint64_t seed = episode_seed(collector_.config_.sampling, requests_[i].id);
  members_[i][m].episode = collector_.environments_->start(
      groups_[i].task, seed, [this, i, m](EpisodeReply reply) { begin(i, m, std::move(reply)); });
}

// The lower limit of two; 0 = no limit.
static int64_t lower_limit(int64_t a, int64_t b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

void Collector::PendingGroups::begin(size_t i, size_t m, EpisodeReply reply) {
  if (!reply.error.empty()) return fail(i, m, reply.error);
  const CollectorConfig& config = collector_.config_;
  Member& member = members_[i][m];
  TrajectoryEncoder& encoder = collector_.encoder_of(groups_[i].task);
  std::vector<int32_t> prompt = encoder.prompt(groups_[i].task, reply.start, member.messages);
  episode_prompts_[i] = member.messages.all;
  const EpisodeLimits& own = reply.start.limits;
  member.max_turns = std::min(config.environment.max_turns, own.max_turns.value_or(config.environment.max_turns));
  member.max_observation_tokens =
      lower_limit(config.environment.max_observation_tokens, own.max_observation_tokens.value_or(0));
  member.max_tokens = lower_limit(config.environment.max_trajectory_tokens, own.max_trajectory_tokens.value_or(0));
  member.max_tokens = lower_limit(member.max_tokens, config.max_positions);
  for (const int32_t id : encoder.stop_ids(member.messages)) member.stop_ids.push_back(id);
  member.builder.emplace(std::move(prompt), config.sampling);
  ask_turn(i, m);
}

void Collector::PendingGroups::ask_turn(size_t i, size_t m) {
  Member& member = members_[i][m];
  const std::vector<int32_t>& tokens = member.builder->tokens();
  GenerationRequest request{.prompt = tokens,
                            .n = 1,
                            .id = turn_request_id(requests_[i].id, m, member.builder->num_turns()),
                            .sampling = collector_.config_.sampling};
  request.sampling.stop_ids.insert(request.sampling.stop_ids.end(), member.stop_ids.begin(), member.stop_ids.end());
  if (member.max_tokens > 0) {
    const int64_t room = member.max_tokens - std::ssize(tokens);
    if (room <= 0) {  // of the first turn: later ones are asked for only if there is room
      CompletionOutput none;
      none.failed = none.rejected = true;
      none.finish_reason =
          concat("the prompt has ", tokens.size(), " tokens, a trajectory may have ", member.max_tokens);
      return answer_turn(i, m, std::move(none));
    }
    request.sampling.max_tokens = std::min(request.sampling.max_tokens, room);
    request.sampling.min_tokens = std::min(request.sampling.min_tokens, room);
  }
  member.ticket =
      collector_.sampler_.submit(std::move(request), [this, i, m](uint64_t, std::vector<CompletionOutput> completions) {
        answer_turn(i, m, std::move(completions.at(0)));
      });
}

void Collector::PendingGroups::answer_turn(size_t i, size_t m, CompletionOutput completion) {
  Member& member = members_[i][m];
  member.ticket.reset();
  if (is_stale(completion)) {
    ++asked_again_;
    stale_members_.emplace_back(i, m);
    return;
  }
  count_failed(groups_[i], completion);
  const bool failed = completion.failed;
  member.turn = {.completion = completion.text, .finish_reason = completion.finish_reason};
  if (!failed)
    member.turn = collector_.encoder_of(groups_[i].task)
                      .read_turn(completion.ids, completion.text, completion.finish_reason, member.messages);
  member.said.push_back(assistant_message(member.turn));
  member.builder->add(std::move(completion));
  if (failed) return finish(i, m, "");
  collector_.environments_->step(member.episode, member.turn,
                                 [this, i, m](EpisodeReply reply) { observe(i, m, std::move(reply)); });
}

// Why the trajectory cannot have another turn; "": it can.
std::string Collector::PendingGroups::limit_of(const Member& member) const {
  const std::string full(max_trajectory_tokens_reason);
  const bool is_full = member.max_tokens > 0 && std::ssize(member.builder->tokens()) >= member.max_tokens;
  if (member.turn.finish_reason == "length") return is_full ? full : "length";
  if (member.builder->num_turns() >= member.max_turns) return std::string(max_turns_reason);
  return is_full ? full : "";
}

void Collector::PendingGroups::observe(size_t i, size_t m, EpisodeReply reply) {
  if (!reply.error.empty()) return fail(i, m, reply.error);
  Member& member = members_[i][m];
  if (reply.step.reward) member.builder->add_reward(*reply.step.reward);
  if (reply.step.done) return finish(i, m, "stop");
  if (const std::string reason = limit_of(member); !reason.empty()) return end_by_limit(i, m, reason);
  if (reply.step.messages.empty()) return fail(i, m, "its answer has no messages, and the episode is not done");
  std::vector<int32_t> tokens = member.builder->tokens();
  const size_t num_messages = member.messages.all.size();
  TrajectoryEncoder::Added added;
  try {
    added = collector_.encoder_of(groups_[i].task)
                .add(member.messages, tokens, member.builder->last_turn().begin, member.turn, reply.step.messages,
                     member.max_observation_tokens);
  } catch (const Error& error) {  // adds the task: the template does not know it
    hone::fail(groups_[i].task.id, ": ", error.what());
  }
  if (member.max_tokens > 0 && std::ssize(tokens) >= member.max_tokens)
    return end_by_limit(i, m, std::string(max_trajectory_tokens_reason));
  if (added.cut) member.builder->counts()["env/truncated_observations"] += 1;
  const bool is_chat = member.messages.all.size() > num_messages;
  const auto& said = is_chat ? member.messages.all : reply.step.messages;
  member.said.insert(member.said.end(), said.end() - std::ssize(reply.step.messages), said.end());
  member.builder->observe(tokens, std::move(added.text));
  ask_turn(i, m);
}

void Collector::PendingGroups::end_by_limit(size_t i, size_t m, const std::string& reason) {
  collector_.environments_->finish(members_[i][m].episode, reason, [this, i, m, reason](EpisodeReply reply) {
    if (!reply.error.empty()) return fail(i, m, reply.error);
    if (reply.last_reward) members_[i][m].builder->add_reward(*reply.last_reward);
    finish(i, m, reason);
  });
}

// The trajectory has no reward, and nothing of it is trained on.
void Collector::PendingGroups::fail(size_t i, size_t m, const std::string& error) {
  Member& member = members_[i][m];
  const Task& task = groups_[i].task;
  collector_.show_fault(task, error);
  ++faults_.failed;
  if (faults_.failure.empty()) faults_.failure = concat(task.id, ": ", error);
  // Without a prompt there is no token. A sample has at least one.
  if (!member.builder)
    member.builder.emplace(std::vector<int32_t>{collector_.tokenizer_.eos().value_or(0)}, collector_.config_.sampling);
  member.builder->counts() = {{"env/failed", 1}};
  member.builder->fail();
  finish(i, m, concat("environment: ", error));
}

void Collector::PendingGroups::finish(size_t i, size_t m, const std::string& reason) {
  const EnvironmentConfig& config = collector_.config_.environment;
  Member& member = members_[i][m];
  ++faults_.trajectories;
  if (is_limit_reason(reason)) member.builder->counts()["env/" + reason] += 1;
  Sample sample = member.builder->finish(reason);
  sample.completion.messages = std::move(member.said);
  std::vector<float> rewards(sample.tokens.size(), 0);
  for (const Turn& turn : sample.turns)
    if (turn.reward && turn.end > turn.begin)
      rewards[turn.end - 1] = static_cast<float>(config.reward_weight * *turn.reward);
  sample.columns.set(columns::turn_reward, std::move(rewards));
  if (is_limit_reason(reason) && !config.train_on_truncated) clear_mask(sample);
  groups_[i].samples[m] = std::move(sample);
  member = {};
  --missing_;
  if (--unfinished_[i] == 0) complete_group(i);
}

// ---- All trajectories

void Collector::PendingGroups::complete_group(size_t i) {
  Group& group = groups_[i];
  const auto sampled =
      std::ranges::find_if(group.samples, [](const Sample& one) { return !one.completion.ids.empty(); });
  const Sample& shown = sampled == group.samples.end() ? group.samples.front() : *sampled;
  group.task.rendered = collector_.tokenizer_.decode(std::span(shown.tokens).first(prompt_length(shown)), false);
  round_.submit(i);
}

bool Collector::PendingGroups::complete(std::chrono::milliseconds timeout) {
  constexpr int64_t max_retries = 8;  // times that a complete batch is submitted again
  HONE_CHECK(asked_again_ <= max_retries * std::ssize(groups_) * collector_.config_.num_generations,
             "collector: ", asked_again_, " completions came from weights older than version ", oldest_version_);
  for (const size_t i : std::exchange(stale_, {})) ask(i);
  for (const auto& [i, m] : std::exchange(stale_members_, {})) play(i, m);
  return missing_ == 0 && round_.scored(timeout);
}

// Adds the environment's rewards to the score.
static void add_turn_rewards(Sample& sample, const EnvironmentConfig& config) {
  if (!sample.scored) return;
  double sum = 0;
  bool any = false;
  for (const Turn& turn : sample.turns) {
    any = any || turn.reward;
    sum += turn.reward.value_or(0);
  }
  if (!any) return;
  sample.reward += config.reward_weight * sum;
  sample.reward_parts[config.label()] = sum;
}

std::vector<Group> Collector::PendingGroups::take() {
  HONE_CHECK(missing_ == 0, "collector: ", missing_, " completions of a batch are not finished");
  const EnvironmentConfig& environment = collector_.config_.environment;
  ScoringOutcome outcome = round_.collect();
  if (environment)
    for (Group& group : groups_)
      for (Sample& sample : group.samples) add_turn_rewards(sample, environment);
  if (collector_.ranks_) exchange(outcome);
  collector_.reward_runner_.check(outcome);
  if (environment) faults_.check(environment);
  collector_.failed_ += failed_;
  return std::move(groups_);
}

// What a rank sends: the length of a JSON text as u64, the text {"rewards": its outcome, "environment": its faults,
// "failed": completions that could not be sampled}, its groups. Every rank, the sender too, takes the groups from these
// bytes.
void Collector::PendingGroups::exchange(ScoringOutcome& outcome) {
  const size_t rank = collector_.rank(), num_ranks = collector_.num_ranks();
  std::vector<Group> own;
  for (size_t i = rank; i < groups_.size() && !outcome.error_group; i += num_ranks)
    own.push_back(std::move(groups_[i]));
  const std::string header =
      Json(JsonObject{{"rewards", outcome.to_json()}, {"environment", faults_.to_json()}, {"failed", failed_}}).dump();
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += header + pack_groups(own);
  const std::vector<std::string> all = collector_.ranks_->all_gather(std::move(bytes), "completions");
  failed_ = 0;
  faults_ = {};
  for (size_t r = 0; r < num_ranks; ++r) {
    uint64_t header_length = 0;
    std::memcpy(&header_length, all[r].data(), sizeof header_length);
    const std::string_view text = std::string_view(all[r]).substr(sizeof header_length);
    const Json from = parse_json(text.substr(0, header_length), "completions of another rank");
    failed_ += from.at("failed", "completions").as_int("failed");
    faults_.join(EnvironmentFaults::from_json(from.at("environment", "completions")));
    if (r != rank) outcome.join(ScoringOutcome::from_json(from.at("rewards", "completions")));
    size_t next = r;
    const auto task_of = [&](const std::string& id) -> const Task& {
      HONE_CHECK(next < tasks_.size() && tasks_[next].id == id, "collector: rank ", r, " sent a completion of ", id,
                 ", another task is due: the ranks have different tasks");
      return tasks_[std::exchange(next, next + num_ranks)];
    };
    size_t place = r;
    for (Group& group : unpack_groups(text.substr(header_length), task_of)) {
      groups_[place] = std::move(group);
      place += num_ranks;
    }
  }
}

}  // namespace hone
