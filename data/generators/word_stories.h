#pragma once
// The texts of word problems (data/generators/word_problems.cpp).
#include <span>

namespace hone {

// A kind of word problem. Slots of its texts: {A} {B} {C} names; {o} {u} things; {c} containers and {s} one of them;
// {x} {y} {z} {w} random numbers of any size, {j} {k} {m} small random numbers; {p} {q} {r} results. "[p=x+y]" in the
// working is a step: it becomes "3 + 4 = 7", and {p} is 7 after it. The last result is the answer.
struct WordStory {
  // Results that the question states, "p=k*m q=p+x", so that a division has an integer result; may be empty.
  const char* given;
  const char* problem;  // the question
  const char* working;  // one to three steps
};

std::span<const WordStory> word_stories();

struct Container {
  const char *one, *many;
};
std::span<const char* const> word_names();
std::span<const char* const> word_things();
std::span<const Container> word_containers();

}  // namespace hone
