#pragma once
// TokenMasks: the tokens that a grammar allows next, as bits. What a frame of the grammar allows by itself is computed
// once by a walk over the vocabulary's tree. It also tells at which nodes of the tree the frame's rule has ended; only
// there the frames below matter, and their part is read for each new stack. Three tables are kept, each within its own
// bound: the automaton's stacks, the masks of frames (the costly ones: milliseconds each), and whole masks by stack.
#include <map>
#include <memory>
#include <unordered_map>

#include "core/text/grammar/grammar_automaton.h"
#include "core/text/grammar/token_trie.h"

namespace hone {

// A place in a grammar. Copies are cheap. It survives the clearing of tables only as far as the caller can read the
// text again: TokenMasks::epoch().
struct GrammarPlace {
  GrammarAutomaton::Stack stack = GrammarAutomaton::nothing;
  uint64_t epoch = 0;
};

// One thread.
class TokenMasks {
 public:
  // The tree must outlive the masks.
  TokenMasks(Grammar grammar, const TokenTrie& trie);
  TokenMasks(const TokenMasks&) = delete;
  TokenMasks& operator=(const TokenMasks&) = delete;

  // Number of 32-bit words of a mask for this many token ids.
  static size_t num_words(int64_t vocab_size) { return (static_cast<size_t>(vocab_size) + 31) / 32; }

  GrammarPlace start();
  // The place after the token; it is dead() if the grammar does not allow the token.
  GrammarPlace advance(GrammarPlace place, int32_t token);
  bool dead(const GrammarPlace& place) const { return place.stack == GrammarAutomaton::nothing; }
  bool can_end(const GrammarPlace& place) const { return automaton_.can_end(place.stack); }
  bool must_end(const GrammarPlace& place) const { return automaton_.must_end(place.stack); }
  // Bit t of word t / 32 is 1 if token t is allowed next. Valid until the next call. The end of the text is not in it.
  std::span<const uint32_t> mask(const GrammarPlace& place);
  // Clears each table that is too large. Places of another epoch must then be computed again from the start.
  void clear_if_large();
  uint64_t epoch() const { return epoch_; }

 private:
  // What a frame allows whatever is below it, and the nodes after whose bytes its rule may have ended.
  struct LocalMask {
    std::vector<uint32_t> bits;   // either all bits
    std::vector<int32_t> tokens;  // or few tokens
    std::vector<int32_t> exits;
  };
  const LocalMask& local_mask(GrammarAutomaton::Frame frame);
  LocalMask compute_local_mask(GrammarAutomaton::Frame frame);
  // Visits the nodes below `node` (-1: all) whose bytes the stack allows. visit(node, stack after it) says whether to
  // go on below the node.
  template <class Visit>
  void walk(int32_t node, GrammarAutomaton::Stack stack, Visit visit);
  std::vector<uint32_t> compute_mask(GrammarAutomaton::Stack stack);
  void allow(std::vector<uint32_t>& bits, const TokenTrie::Node& node) const;

  const Grammar grammar_;
  const TokenTrie& trie_;
  GrammarAutomaton automaton_;
  std::map<std::vector<int32_t>, LocalMask> local_masks_;                      // by the frame's states
  std::unordered_map<GrammarAutomaton::Frame, const LocalMask*> frame_masks_;  // of this epoch
  std::unordered_map<GrammarAutomaton::Stack, std::vector<uint32_t>> masks_;
  std::vector<GrammarAutomaton::Stack> path_;  // of walk(): the stack at each depth
  size_t local_bytes_ = 0, mask_bytes_ = 0;
  uint64_t epoch_ = 1;
};

}  // namespace hone
