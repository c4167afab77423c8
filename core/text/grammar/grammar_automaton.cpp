#include "core/text/grammar/grammar_automaton.h"

#include <algorithm>
#include <set>

#include "core/base/check.h"

namespace hone {
namespace {

constexpr int32_t kUnseen = -1;  // an entry of a table that is not computed yet
constexpr size_t kMostFirstSteps = 8;
constexpr GrammarAutomaton::Frame kNoFrame = -2;  // no state of the rule reads the byte
constexpr GrammarAutomaton::Frame kEndFrame = 0, kUnknownFrame = 1;

size_t mix(size_t hash, int64_t value) {
  hash ^= static_cast<size_t>(value) + 0x9E3779B97F4A7C15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xFF51AFD7ED558CCDULL;
}

std::unique_ptr<std::array<int32_t, 256>> new_table() {
  auto out = std::make_unique<std::array<int32_t, 256>>();
  out->fill(kUnseen);
  return out;
}

}  // namespace

size_t GrammarAutomaton::Hash::operator()(const std::vector<int32_t>& key) const {
  size_t hash = key.size();
  for (const int32_t value : key) hash = mix(hash, value);
  return hash;
}

size_t GrammarAutomaton::Hash::operator()(const std::vector<Item>& key) const {
  size_t hash = key.size();
  for (const Item& item : key) hash = mix(mix(hash, item.frame), item.below);
  return hash;
}

GrammarAutomaton::GrammarAutomaton(const Grammar& grammar)
    : grammar_(grammar), rule_ends_(grammar.states.size()), seen_(grammar.states.size()) {
  for (const Grammar::Rule& rule : grammar.rules) rule_ends_[static_cast<size_t>(rule.end)] = 1;
  clear();
}

void GrammarAutomaton::clear() {
  frames_.clear();
  stacks_.clear();
  frame_ids_.clear();
  stack_ids_.clear();
  united_.clear();
  rule_starts_.assign(grammar_.rules.size(), -1);
  bytes_ = 0;
  start_ = -1;
  frames_.resize(2);  // kEndFrame and kUnknownFrame have no states
  stacks_.resize(3);
  stacks_[complete].items = {{kEndFrame, nothing}};
  stacks_[unknown].items = {{kUnknownFrame, nothing}};
  for (const Stack stack : {nothing, complete, unknown}) stack_ids_[stacks_[static_cast<size_t>(stack)].items] = stack;
}

void GrammarAutomaton::account(size_t bytes) {
  bytes_ += bytes;
  HONE_CHECK(bytes_ <= 2 * max_bytes, "the grammar is too ambiguous: its tables need more than ", max_bytes >> 20,
             " MB; lower its repetition counts or lengths");
}

// Adds what empty edges reach.
GrammarAutomaton::Frame GrammarAutomaton::frame_of(std::vector<int32_t> states) {
  ++closures_;
  std::vector<int32_t> kept;
  while (!states.empty()) {
    const int32_t id = states.back();
    states.pop_back();
    if (seen_[static_cast<size_t>(id)] == closures_) continue;
    seen_[static_cast<size_t>(id)] = closures_;
    const Grammar::State& state = grammar_.states[static_cast<size_t>(id)];
    if (!state.bytes.empty() || !state.calls.empty() || rule_ends_[static_cast<size_t>(id)] != 0) kept.push_back(id);
    states.insert(states.end(), state.empty.begin(), state.empty.end());
    for (const Grammar::CallEdge& call : state.calls)
      if (grammar_.rules[static_cast<size_t>(call.rule)].nullable) states.push_back(call.to);
  }
  std::ranges::sort(kept);
  return kept.empty() ? kNoFrame : intern_frame(std::move(kept));
}

GrammarAutomaton::Frame GrammarAutomaton::intern_frame(std::vector<int32_t> states) {
  const auto found = frame_ids_.find(states);
  if (found != frame_ids_.end()) return found->second;
  account(200 + 8 * states.size());
  FrameData frame;
  for (const int32_t id : states) {
    const Grammar::State& state = grammar_.states[static_cast<size_t>(id)];
    frame.ends = frame.ends || rule_ends_[static_cast<size_t>(id)] != 0;
    frame.moves = frame.moves || !state.bytes.empty() || !state.calls.empty();
  }
  frame.states = states;
  const auto out = static_cast<Frame>(frames_.size());
  frames_.push_back(std::move(frame));
  frame_ids_.emplace(std::move(states), out);
  return out;
}

GrammarAutomaton::Frame GrammarAutomaton::next_frame(Frame frame, uint8_t byte) {
  if (!frames_[static_cast<size_t>(frame)].next) {
    account(sizeof(Table));
    frames_[static_cast<size_t>(frame)].next = new_table();
  }
  int32_t& known = (*frames_[static_cast<size_t>(frame)].next)[byte];
  if (known != kUnseen) return known;
  std::vector<int32_t> targets;
  for (const int32_t id : frames_[static_cast<size_t>(frame)].states)
    for (const Grammar::ByteEdge& edge : grammar_.states[static_cast<size_t>(id)].bytes)
      if (edge.first <= byte && byte <= edge.last) targets.push_back(edge.to);
  const Frame next = targets.empty() ? kNoFrame : frame_of(std::move(targets));
  return (*frames_[static_cast<size_t>(frame)].next)[byte] = next;  // `known` may have moved
}

const std::vector<std::pair<int32_t, GrammarAutomaton::Frame>>& GrammarAutomaton::calls_of(Frame frame) {
  if (!frames_[static_cast<size_t>(frame)].knows_calls) {
    std::map<int32_t, std::vector<int32_t>> targets;
    for (const int32_t id : frames_[static_cast<size_t>(frame)].states)
      for (const Grammar::CallEdge& call : grammar_.states[static_cast<size_t>(id)].calls)
        targets[call.rule].push_back(call.to);
    std::vector<std::pair<int32_t, Frame>> calls;
    for (auto& [rule, to] : targets) {
      const Frame after = frame_of(std::move(to));
      if (after != kNoFrame) calls.emplace_back(rule, after);
    }
    account(calls.size() * 16);
    frames_[static_cast<size_t>(frame)].calls = std::move(calls);
    frames_[static_cast<size_t>(frame)].knows_calls = true;
  }
  return frames_[static_cast<size_t>(frame)].calls;
}

GrammarAutomaton::Stack GrammarAutomaton::intern(std::vector<Item> items) {
  if (items.empty()) return nothing;
  const auto found = stack_ids_.find(items);
  if (found != stack_ids_.end()) return found->second;
  account(250 + 32 * items.size());
  StackData stack;
  for (const Item& item : items) stack.depth = std::max(stack.depth, depth(item.below) + 1);
  stack.items = items;
  const auto out = static_cast<Stack>(stacks_.size());
  stacks_.push_back(std::move(stack));
  stack_ids_.emplace(std::move(items), out);
  return out;
}

GrammarAutomaton::Stack GrammarAutomaton::intern(const Items& items) {
  std::vector<Item> list;
  list.reserve(items.size());
  for (const auto& [frame, below] : items) list.push_back({frame, below});
  return intern(std::move(list));
}

GrammarAutomaton::Stack GrammarAutomaton::unite(Stack a, Stack b) {
  if (a == b || b == nothing) return a;
  if (a == nothing) return b;
  const std::pair<Stack, Stack> key = std::minmax(a, b);
  const auto found = united_.find(key);
  if (found != united_.end()) return found->second;
  Items items;
  for (const Stack from : {a, b})
    for (const Item& item : std::vector<Item>(this->items(from))) join(items, item.frame, item.below);
  account(64);
  return united_[key] = intern(items);
}

void GrammarAutomaton::join(Items& items, Frame frame, Stack below) {
  const auto [place, added] = items.emplace(frame, below);
  if (!added) place->second = unite(place->second, below);
}

// Adds a frame. If its rule may end there, what is below goes on as well; if it must, only that.
void GrammarAutomaton::add_item(Items& items, Frame frame, Stack below) {
  const bool ends = frames_[static_cast<size_t>(frame)].ends;
  if (frames_[static_cast<size_t>(frame)].moves) join(items, frame, below);
  if (!ends) return;
  for (const Item& item : std::vector<Item>(this->items(below))) join(items, item.frame, item.below);
}

GrammarAutomaton::Stack GrammarAutomaton::start() {
  if (start_ >= 0) return start_;
  Items items;
  const Frame first = frame_of({grammar_.rules[static_cast<size_t>(grammar_.root)].begin});
  if (first != kNoFrame) add_item(items, first, complete);
  return start_ = intern(items);
}

GrammarAutomaton::Frame GrammarAutomaton::start_of(int32_t rule) {
  Frame& first = rule_starts_[static_cast<size_t>(rule)];
  if (first != -1) return first;
  const Grammar::Rule& data = grammar_.rules[static_cast<size_t>(rule)];
  first = frame_of({data.begin});
  if (first != kNoFrame) frames_[static_cast<size_t>(first)].rank = data.rank;
  return first;
}

// Adds the rules that the frames call. Callers come before callees, so that each frame is looked at once, with
// everything below it.
void GrammarAutomaton::expand(Stack stack) {
  Items tops;
  std::set<std::pair<int32_t, Frame>> todo;  // by rank
  const auto add = [&](Frame frame, Stack below) {
    join(tops, frame, below);
    todo.emplace(frames_[static_cast<size_t>(frame)].rank, frame);
  };
  for (const Item& item : std::vector<Item>(items(stack))) add(item.frame, item.below);
  while (!todo.empty()) {
    const Frame frame = todo.extract(todo.begin()).value().second;
    const Stack below = tops.at(frame);
    for (const auto& [rule, after] : std::vector(calls_of(frame))) {
      Items items;
      add_item(items, after, below);
      const Stack back = intern(items);
      const Frame first = start_of(rule);
      if (first != kNoFrame && depth(back) < max_depth) add(first, back);
    }
  }
  account(16 * tops.size());
  StackData& data = stacks_[static_cast<size_t>(stack)];
  data.tops.clear();
  for (const auto& [frame, below] : tops) data.tops.push_back({frame, below});
  data.expanded = true;
}

GrammarAutomaton::Stack GrammarAutomaton::compute_step(Stack stack, uint8_t byte) {
  if (!stacks_[static_cast<size_t>(stack)].expanded) expand(stack);
  Items items;
  const size_t count = stacks_[static_cast<size_t>(stack)].tops.size();
  for (size_t i = 0; i < count; ++i) {
    const Item top = stacks_[static_cast<size_t>(stack)].tops[i];
    const Frame next = next_frame(top.frame, byte);
    if (next != kNoFrame) add_item(items, next, top.below);
  }
  return intern(items);
}

GrammarAutomaton::Stack GrammarAutomaton::step(Stack stack, uint8_t byte) {
  const StackData& data = stacks_[static_cast<size_t>(stack)];
  if (data.next) {
    if (const int32_t known = (*data.next)[byte]; known != kUnseen) return known;
  } else {
    for (const auto& [read, next] : data.first_steps)
      if (read == byte) return next;
  }
  const Stack next = compute_step(stack, byte);  // `data` may have moved
  remember_step(stack, byte, next);
  return next;
}

void GrammarAutomaton::remember_step(Stack stack, uint8_t byte, Stack next) {
  StackData& data = stacks_[static_cast<size_t>(stack)];
  if (!data.next && data.first_steps.size() < kMostFirstSteps) {
    account(sizeof data.first_steps.front());
    data.first_steps.emplace_back(byte, next);
    return;
  }
  if (!data.next) {
    account(sizeof(Table));
    data.next = new_table();
    for (const auto& [read, after] : data.first_steps) (*data.next)[read] = after;
    data.first_steps = {};
  }
  (*data.next)[byte] = next;
}

bool GrammarAutomaton::can_end(Stack stack) const {
  const std::vector<Item>& on_top = items(stack);
  return !on_top.empty() && on_top.front().frame == kEndFrame;
}

bool GrammarAutomaton::has_unknown(Stack stack) const {
  const std::vector<Item>& on_top = items(stack);
  return !on_top.empty() && on_top.front().frame == kUnknownFrame;
}

GrammarAutomaton::Frame GrammarAutomaton::alias(Frame frame) {
  const FrameData& data = frames_[static_cast<size_t>(frame)];
  if (data.states.empty()) return frame;
  if (data.alias >= 0) return data.alias;
  std::vector<int32_t> states;
  for (const int32_t id : data.states) states.push_back(grammar_.states[static_cast<size_t>(id)].alias);
  std::ranges::sort(states);
  states.erase(std::unique(states.begin(), states.end()), states.end());
  const Frame out = intern_frame(std::move(states));
  return frames_[static_cast<size_t>(frame)].alias = out;
}

GrammarAutomaton::Stack GrammarAutomaton::alias_stack(Stack stack) {
  Items out;
  for (const Item& item : std::vector<Item>(items(stack))) join(out, alias(item.frame), item.below);
  return intern(out);
}

}  // namespace hone
