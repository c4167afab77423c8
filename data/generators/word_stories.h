#pragma once
// The texts that word problems are made of.
#include <span>

namespace hone {

// A kind of word problem. Slots of its texts: {A} {B} {C} names; {o} {u} things; {c} containers and {s} one of them;
// {x} {y} {z} {w} numbers of any size and {j} {k} {m} small ones, all drawn; {p} {q} {r} results. "[p=x+y]" in the
// working is a step: it stands for "3 + 4 = 7", and {p} is 7 from there on. The last result is the answer.
struct WordStory {
  const char*
      given;  // results that the question states, "p=k*m q=p+x": so that a division comes out whole; may be empty
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
