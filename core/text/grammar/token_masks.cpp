#include "core/text/grammar/token_masks.h"

namespace hone {

namespace {
// Of a grammar's masks.
constexpr size_t kMaxLocalBytes = size_t{24} << 20, kMaxMaskBytes = size_t{8} << 20;
}  // namespace

TokenMasks::TokenMasks(Grammar grammar, const TokenTrie& trie)
    : grammar_(std::move(grammar)),
      trie_(trie),
      automaton_(grammar_),
      path_(static_cast<size_t>(trie.longest_token()) + 1) {}

GrammarPlace TokenMasks::start() { return {automaton_.start(), epoch_}; }

GrammarPlace TokenMasks::advance(GrammarPlace place, int32_t token) {
  const bool known = token >= 0 && token < trie_.vocab_size() && !trie_.token_bytes(token).empty();
  if (!known) return {GrammarAutomaton::nothing, epoch_};
  for (const char byte : trie_.token_bytes(token)) {
    if (place.stack == GrammarAutomaton::nothing) break;
    place.stack = automaton_.step(place.stack, static_cast<uint8_t>(byte));
  }
  return place;
}

void TokenMasks::clear_if_large() {
  const bool clears_stacks = automaton_.bytes() >= GrammarAutomaton::max_bytes;
  if (clears_stacks) {
    automaton_.clear();
    ++epoch_;
  }
  if (clears_stacks || mask_bytes_ >= kMaxMaskBytes) {
    masks_.clear();
    mask_bytes_ = 0;
  }
  if (clears_stacks || local_bytes_ >= kMaxLocalBytes) frame_masks_.clear();
  if (local_bytes_ >= kMaxLocalBytes) {
    local_masks_.clear();
    local_bytes_ = 0;
  }
}

template <class Visit>
void TokenMasks::walk(int32_t node, GrammarAutomaton::Stack stack, Visit visit) {
  const std::vector<TokenTrie::Node>& nodes = trie_.nodes();
  const auto size = static_cast<int32_t>(nodes.size());
  const int32_t end = node < 0 ? size : nodes[static_cast<size_t>(node)].end;
  path_[node < 0 ? 0 : static_cast<size_t>(nodes[static_cast<size_t>(node)].depth)] = stack;
  for (int32_t i = node + 1; i < end;) {
    const TokenTrie::Node& each = nodes[static_cast<size_t>(i)];
    const auto depth = static_cast<size_t>(each.depth);
    const GrammarAutomaton::Stack next = automaton_.step(path_[depth - 1], each.byte);
    path_[depth] = next;
    i = next != GrammarAutomaton::nothing && visit(i, next) ? i + 1 : each.end;
  }
}

void TokenMasks::allow(std::vector<uint32_t>& bits, const TokenTrie::Node& node) const {
  for (const int32_t token : trie_.tokens(node)) bits[static_cast<size_t>(token) / 32] |= 1U << (token % 32);
}

const TokenMasks::LocalMask& TokenMasks::local_mask(GrammarAutomaton::Frame frame) {
  if (const auto known = frame_masks_.find(frame); known != frame_masks_.end()) return *known->second;
  auto place = local_masks_.find(automaton_.states(frame));
  if (place == local_masks_.end()) {
    place = local_masks_.emplace(automaton_.states(frame), compute_local_mask(frame)).first;
    const LocalMask& made = place->second;
    local_bytes_ +=
        4 * (made.bits.size() + made.tokens.size() + made.exits.size() + automaton_.states(frame).size()) + 250;
  }
  frame_masks_[frame] = &place->second;
  return place->second;
}

TokenMasks::LocalMask TokenMasks::compute_local_mask(GrammarAutomaton::Frame frame) {
  LocalMask out;
  walk(-1, automaton_.local(frame), [&](int32_t i, GrammarAutomaton::Stack stack) {
    const TokenTrie::Node& node = trie_.nodes()[static_cast<size_t>(i)];
    const std::span<const int32_t> tokens = trie_.tokens(node);
    out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
    if (automaton_.has_unknown(stack) && node.end > i + 1) out.exits.push_back(i);
    return stack != GrammarAutomaton::unknown;
  });
  const size_t words = num_words(trie_.vocab_size());
  if (out.tokens.size() > words) {
    out.bits.resize(words);
    for (const int32_t token : out.tokens) out.bits[static_cast<size_t>(token) / 32] |= 1U << (token % 32);
    out.tokens.clear();
  }
  out.tokens.shrink_to_fit();
  return out;
}

std::vector<uint32_t> TokenMasks::compute_mask(GrammarAutomaton::Stack stack) {
  std::vector<uint32_t> out(num_words(trie_.vocab_size()));
  const auto allow_below = [&](int32_t node, GrammarAutomaton::Stack from) {
    walk(node, from, [&](int32_t i, GrammarAutomaton::Stack) {
      allow(out, trie_.nodes()[static_cast<size_t>(i)]);
      return true;
    });
  };
  // A token may nest as many times as it has bytes. Near the limit of the depth only a walk over all tokens is exact.
  if (automaton_.depth(stack) + trie_.longest_token() >= GrammarAutomaton::max_depth) {
    allow_below(-1, stack);
    return out;
  }
  for (const GrammarAutomaton::Item& item : std::vector(automaton_.items(stack))) {
    const LocalMask& local = local_mask(item.frame);
    for (size_t w = 0; w < local.bits.size(); ++w) out[w] |= local.bits[w];
    for (const int32_t token : local.tokens) out[static_cast<size_t>(token) / 32] |= 1U << (token % 32);
    if (item.below == GrammarAutomaton::complete) continue;
    for (const int32_t exit : local.exits) allow_below(exit, item.below);
  }
  return out;
}

std::span<const uint32_t> TokenMasks::mask(const GrammarPlace& place) {
  const GrammarAutomaton::Stack stack = automaton_.alias_stack(place.stack);
  const auto found = masks_.find(stack);
  if (found != masks_.end()) return found->second;
  std::vector<uint32_t> bits = compute_mask(stack);
  mask_bytes_ += 4 * bits.size() + 100;
  return masks_[stack] = std::move(bits);
}

}  // namespace hone
