#pragma once
// GrammarAutomaton: reads a text byte by byte and knows at each place whether a compiled grammar allows it.
//
// The automaton is determinized while it runs. A frame is a set of states of one rule. A stack is a frame and the
// stacks below it; all texts that may follow are those of the frames on top. Equal frames are joined, so that stacks of
// an ambiguous grammar share their parts (a graph-structured stack), and equal stacks get one id. A step from a known
// stack is a table look-up. A call at the end of a rule replaces the frame, so lists do not deepen the stack.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/text/grammar/grammar.h"

namespace hone {

// One thread. Ids are valid until clear().
class GrammarAutomaton {
 public:
  using Stack = int32_t;
  using Frame = int32_t;
  // nothing: no text may follow. complete: the text is complete and must end. unknown: only used while tokens are read
  // without the frames below (TokenMasks).
  static constexpr Stack nothing = 0, complete = 1, unknown = 2;
  // Calls that would nest deeper are not made. An array or object takes one level, so that core/io/json.h reads them.
  static constexpr int32_t max_depth = 250;
  // Tables of more than this are cleared when a caller can. Twice as much is an Error: it bounds the memory and the
  // time of one computation.
  static constexpr size_t max_bytes = size_t{16} << 20;

  // The grammar must outlive the automaton.
  explicit GrammarAutomaton(const Grammar& grammar);

  struct Item {
    Frame frame = 0;
    Stack below = 0;
    bool operator==(const Item&) const = default;
  };
  Stack start();
  // The stack after one more byte; `nothing` if the grammar does not allow it.
  Stack step(Stack stack, uint8_t byte);
  // True if the text may end here.
  bool can_end(Stack stack) const;
  // True if nothing but the end may follow.
  bool must_end(Stack stack) const { return stack == complete; }
  // The states of a frame, which mean the same after clear().
  const std::vector<int32_t>& states(Frame frame) const { return frames_[static_cast<size_t>(frame)].states; }
  // The frames on top, by ascending id.
  const std::vector<Item>& items(Stack stack) const { return stacks_[static_cast<size_t>(stack)].items; }
  int32_t depth(Stack stack) const { return stacks_[static_cast<size_t>(stack)].depth; }
  // A stack of one frame on `unknown`.
  Stack local(Frame frame) { return intern(std::vector<Item>{{frame, unknown}}); }
  bool has_unknown(Stack stack) const;
  // The frame that stands for this one in a look-ahead of up to the grammar's horizon.
  Frame alias(Frame frame);
  // The same stack with the aliases of the frames on top.
  Stack alias_stack(Stack stack);

  // Bytes of all tables.
  size_t bytes() const { return bytes_; }
  // Forgets everything; all ids become invalid.
  void clear();

 private:
  using Table = std::array<int32_t, 256>;
  struct FrameData {
    std::vector<int32_t> states;  // ascending, with edges, or the end of the rule
    bool ends = false;            // the rule may end here
    bool moves = false;           // the rule may go on
    bool knows_calls = false;
    int32_t rank = -1;  // of the rule that begins with this frame
    Frame alias = -1;
    std::vector<std::pair<int32_t, Frame>> calls;  // rule, and the frame after it
    std::unique_ptr<Table> next;
  };
  struct StackData {
    std::vector<Item> items;
    int32_t depth = 0;
    bool expanded = false;
    std::vector<Item> tops;  // the frames that read the next byte: items, and the rules that they call
    // Known steps: the first ones as a list, since most stacks read few bytes; then all in a table.
    std::vector<std::pair<uint8_t, Stack>> first_steps;
    std::unique_ptr<Table> next;
  };
  struct Hash {
    size_t operator()(const std::vector<int32_t>& key) const;
    size_t operator()(const std::vector<Item>& key) const;
  };
  using Items = std::map<Frame, Stack>;

  Frame frame_of(std::vector<int32_t> states);
  Frame intern_frame(std::vector<int32_t> states);
  Frame next_frame(Frame frame, uint8_t byte);
  const std::vector<std::pair<int32_t, Frame>>& calls_of(Frame frame);
  Stack intern(std::vector<Item> items);
  Stack intern(const Items& items);
  void add_item(Items& items, Frame frame, Stack below);
  void join(Items& items, Frame frame, Stack below);
  Stack unite(Stack a, Stack b);
  void expand(Stack stack);
  Frame start_of(int32_t rule);
  Stack compute_step(Stack stack, uint8_t byte);
  void remember_step(Stack stack, uint8_t byte, Stack next);
  void account(size_t bytes);

  const Grammar& grammar_;
  std::vector<int32_t> rule_ends_;  // state -> 1 if it ends its rule
  std::vector<FrameData> frames_;
  std::vector<StackData> stacks_;
  std::unordered_map<std::vector<int32_t>, Frame, Hash> frame_ids_;
  std::unordered_map<std::vector<Item>, Stack, Hash> stack_ids_;
  std::map<std::pair<Stack, Stack>, Stack> united_;
  std::vector<Frame> rule_starts_;
  std::vector<uint32_t> seen_;  // by state: the number of the last closure that reached it
  uint32_t closures_ = 0;
  size_t bytes_ = 0;
  Stack start_ = -1;
};

}  // namespace hone
