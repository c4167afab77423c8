// Word problems of one to three steps, like GSM8K's but small: "Mia has 12 marbles. Leo gives Mia 5 more. How many
// marbles does Mia have now?", completed as "Mia has 12 + 5 = 17 marbles.\n#### 17" or, without working, as "#### 17".
// Every number of a problem is at least 2. A hash of its text alone decides whether a problem belongs to the test
// split, so no test problem is a train problem under other settings.
#include <algorithm>
#include <array>
#include <vector>

#include "core/base/rng.h"
#include "data/generator.h"
#include "data/generators/word_stories.h"

namespace hone {
namespace {

constexpr int64_t smallest = 2;  // at least 2, so nouns are always plural

// The values of a story's slots.
class Slots {
 public:
  void word(char slot, std::string text) { words_[index(slot)] = std::move(text); }
  void number(char slot, int64_t value) {
    numbers_[index(slot)] = value;
    words_[index(slot)] = std::to_string(value);
  }
  // Computes a step "p=x+y" of single characters and sets slot p. False if the result is too small or not an integer.
  bool compute(std::string_view step) {
    const int64_t a = numbers_[index(step[2])], b = numbers_[index(step[4])];
    const char sign = step[3];
    if (sign == '/' && a % b != 0) return false;
    number(step[0], sign == '+' ? a + b : sign == '-' ? a - b : sign == '*' ? a * b : a / b);
    last_ = numbers_[index(step[0])];
    return last_ >= smallest;
  }
  // Appends the text to `out` with slots filled and steps computed. False if a step has no valid result.
  bool fill(std::string_view text, std::string& out) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '{') {
        out += words_[index(text[i + 1])];
        i += 2;
      } else if (text[i] == '[') {
        const std::string_view step = text.substr(i + 1, 5);
        out += words_[index(step[2])] + " " + step[3] + " " + words_[index(step[4])] + " = ";
        if (!compute(step)) return false;
        out += words_[index(step[0])];
        i += 6;
      } else {
        out += text[i];
      }
    }
    return true;
  }
  int64_t last() const { return last_; }  // result of the last step

 private:
  static size_t index(char slot) { return static_cast<size_t>(slot) & 127; }
  std::array<std::string, 128> words_;
  std::array<int64_t, 128> numbers_{};
  int64_t last_ = 0;
};

size_t steps_of(const WordStory& story) {
  const std::string_view working = story.working;
  return static_cast<size_t>(std::count(working.begin(), working.end(), '['));
}

class WordProblems : public Generator {
 public:
  void fields(Fields& f) override {
    f("min_steps", min_steps_, "minimum number of steps of a problem");
    f("max_steps", max_steps_, "maximum number of steps of a problem, at most 3");
    f("max_number", max_number_, "largest number in a problem; results may be larger");
    f("max_factor", max_factor_, "largest number of equal things (containers, days, friends)");
    f("worked", worked_, "share of completions that show their working; the others give only the answer");
    f("problems", problems_, "number of problems of the train split");
    f("heldout", heldout_, "number of problems of the test split");
    f("seed", seed_, "seed of the train split; the test split does not depend on it");
    f.require("min_steps", min_steps_ >= 1 && min_steps_ <= max_steps_, "min_steps must be in [1, max_steps]");
    f.require("max_steps", max_steps_ <= 3, "max_steps must be in [min_steps, 3]");
    f.require("max_number", max_number_ >= 10 && max_number_ <= 1000000, "max_number must be in [10, 1000000]");
    f.require("max_factor", max_factor_ >= 3 && max_factor_ <= 1000, "max_factor must be in [3, 1000]");
    f.require("worked", worked_ >= 0 && worked_ <= 1, "worked must be in [0, 1]");
    f.require("problems", problems_ > 0, "problems must be positive");
    f.require("heldout", heldout_ > 0, "heldout must be positive");
  }

  void prepare() override {
    for (const WordStory& story : word_stories()) by_steps_.at(steps_of(story) - 1).push_back(&story);
  }

  int64_t size(const std::string& split) const override { return split == "test" ? heldout_ : problems_; }

  Example example(const std::string& split, int64_t index) const override {
    const bool test = split == "test";
    const uint64_t stream =
        stream_of(test ? "word_problems/test" : "word_problems/train") + static_cast<uint64_t>(index);
    Rng rng(test ? 0 : static_cast<uint64_t>(seed_), stream);
    const bool work = rng.uniform() < worked_;
    const auto steps =
        static_cast<uint64_t>(min_steps_) + rng.below(static_cast<uint64_t>(max_steps_ - min_steps_ + 1));
    const auto& stories = by_steps_[steps - 1];
    const WordStory& story = *stories[rng.below(stories.size())];
    for (;;) {  // until all steps have valid results and the problem belongs to the split
      Slots slots = draw(rng);
      if (!work_out(story.given, slots)) continue;
      Example out;
      std::string working;
      slots.fill(story.problem, out.prompt);
      if (!slots.fill(story.working, working) || in_test(out.prompt) != test) continue;
      out.prompt += "\n";
      out.answer = std::to_string(slots.last());
      out.completion = (work ? working + "\n" : "") + "#### " + out.answer;
      return out;
    }
  }

 private:
  // True for a tenth of all texts.
  static bool in_test(const std::string& problem) { return stream_of(problem.c_str()) % 10 == 0; }

  static bool work_out(std::string_view given, Slots& slots) {
    for (; !given.empty(); given.remove_prefix(std::min<size_t>(given.size(), 6)))
      if (!slots.compute(given.substr(0, 5))) return false;
    return true;
  }

  // Gives each of these slots a different word of `from`.
  static void draw_words(Rng& rng, std::string_view slots, std::span<const char* const> from, Slots& out) {
    std::vector<uint64_t> taken;
    for (const char slot : slots) {
      uint64_t pick;
      do pick = rng.below(from.size());
      while (std::find(taken.begin(), taken.end(), pick) != taken.end());
      taken.push_back(pick);
      out.word(slot, from[pick]);
    }
  }

  Slots draw(Rng& rng) const {
    Slots out;
    draw_words(rng, "ABC", word_names(), out);
    draw_words(rng, "ou", word_things(), out);
    const Container& container = word_containers()[rng.below(word_containers().size())];
    out.word('s', container.one);
    out.word('c', container.many);
    const auto number = [&](int64_t most) {
      return smallest + static_cast<int64_t>(rng.below(static_cast<uint64_t>(most - smallest + 1)));
    };
    for (const char slot : {'x', 'y', 'z', 'w'}) out.number(slot, number(max_number_));
    for (const char slot : {'j', 'k', 'm'}) out.number(slot, number(max_factor_));
    return out;
  }

  int64_t min_steps_ = 1, max_steps_ = 3, max_number_ = 50, max_factor_ = 9, problems_ = 1000000, heldout_ = 1000,
          seed_ = 0;
  double worked_ = 1;
  std::array<std::vector<const WordStory*>, 3> by_steps_;
};

[[maybe_unused]] const bool added =
    generators().add("word_problems", [] { return std::unique_ptr<Generator>(new WordProblems); });

}  // namespace
}  // namespace hone
