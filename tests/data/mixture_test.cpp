#include "data/mixture.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/errors.h"

namespace hone {
namespace {

using test::error_of;

const std::vector<MixturePart> three = {
    {.name = "a", .count = 5}, {.name = "b", .count = 20}, {.name = "c", .count = 2}};

std::vector<MixturePart> weighted(double a, double b, double c) {
  std::vector<MixturePart> out = three;
  out[0].weight = a, out[1].weight = b, out[2].weight = c;
  return out;
}

size_t part_of(int64_t index) { return index < 5 ? 0 : index < 25 ? 1 : 2; }

TEST(Mixture, OfOnePartIsItsIndexLoader) {
  IndexLoader loader(10, 7);
  Mixture mixture({{.name = "only", .count = 10, .weight = 3}}, 7);
  for (int i = 0; i < 25; ++i) {
    EXPECT_EQ(mixture.next(), loader.next());
    EXPECT_EQ(mixture.epoch(), loader.epoch());
    EXPECT_EQ(mixture.num_given(), loader.num_given());
  }
  StateSection one, other;
  mixture.save_state(one);
  loader.save_state(other);
  EXPECT_EQ(one.values.dump(), other.values.dump());
  EXPECT_TRUE(mixture.metrics().empty());
}

TEST(Mixture, WithoutWeightsEachEpochHasEverySampleOnce) {
  Mixture mixture(three, 3);
  std::vector<int64_t> first;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> seen;
    for (int i = 0; i < 27; ++i) {
      const int64_t index = mixture.next();
      seen.insert(index);
      if (epoch == 0) first.push_back(index);
    }
    EXPECT_EQ(seen.size(), 27u);
  }
  EXPECT_EQ(mixture.metrics(), (Metrics{{"epoch/a", 3}, {"epoch/b", 3}, {"epoch/c", 3}}));
  EXPECT_EQ(mixture.num_given(), 81);
  Mixture again(three, 3), other(three, 4);
  std::vector<int64_t> repeated, reseeded;
  for (int i = 0; i < 27; ++i) repeated.push_back(again.next()), reseeded.push_back(other.next());
  EXPECT_EQ(repeated, first);
  EXPECT_NE(reseeded, first);
}

TEST(Mixture, SharesFollowTheWeightsFromTheFirstSampleOn) {
  const double weights[] = {0.5, 0.3, 0.2};
  Mixture mixture(weighted(0.5, 0.3, 0.2), 1);
  std::map<size_t, int> drawn;
  for (int n = 1; n <= 1000; ++n) {
    ++drawn[part_of(mixture.next())];
    for (size_t p = 0; p < 3; ++p) EXPECT_NEAR(drawn[p], weights[p] * n, 1.0) << n;
  }
  EXPECT_EQ(drawn[0], 500);
  EXPECT_EQ(drawn[1], 300);
  EXPECT_EQ(drawn[2], 200);
  EXPECT_EQ(mixture.metrics().at("epoch/c"), 100);
}

TEST(Mixture, TheOrderOfASourceDoesNotDependOnTheOthers) {
  const auto of_first = [](std::vector<MixturePart> parts) {
    Mixture mixture(std::move(parts), 9);
    std::vector<int64_t> out;
    while (out.size() < 12)
      if (const int64_t index = mixture.next(); index < 5) out.push_back(index);
    return out;
  };
  EXPECT_EQ(of_first(weighted(1, 1, 1)), of_first(weighted(1, 7, 3)));
  EXPECT_EQ(of_first(three), of_first({three[0], {.name = "other", .count = 3}}));
}

TEST(Mixture, AnIndexThatIsPassedOverLeavesTheSharesAlone) {
  Mixture mixture(weighted(1, 1, 2), 5);
  std::map<size_t, int> drawn;
  for (int n = 0; n < 40; ++n) ++drawn[part_of(mixture.next([](int64_t index, int64_t) { return index % 2 == 0; }))];
  EXPECT_EQ(drawn[0], 10);
  EXPECT_EQ(drawn[1], 10);
  EXPECT_EQ(drawn[2], 20);
  EXPECT_GT(mixture.num_given(), 40);
}

TEST(Mixture, GoesOnFromASavedPosition) {
  Mixture whole(weighted(3, 2, 1), 3), resumed(weighted(3, 2, 1), 3);
  for (int i = 0; i < 17; ++i) whole.next();
  StateSection section;
  whole.save_state(section);
  EXPECT_TRUE(section.tensors.empty());
  resumed.load_state(section);
  EXPECT_EQ(resumed.epoch(), whole.epoch());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(whole.next(), resumed.next());
}

TEST(Mixture, RefusesOtherSourcesAndNonsense) {
  Mixture mixture(weighted(3, 2, 1), 3);
  for (int i = 0; i < 5; ++i) mixture.next();
  StateSection section;
  mixture.save_state(section);
  const auto refusal = [&](std::vector<MixturePart> parts, uint64_t seed = 3) {
    Mixture other(std::move(parts), seed);
    return error_of([&] { other.load_state(section); });
  };
  std::vector<MixturePart> renamed = weighted(3, 2, 1), larger = renamed, fewer = renamed;
  renamed[1].name = "x", larger[2].count = 3, fewer.pop_back();
  EXPECT_NE(refusal(renamed).find("source 1 was b"), std::string::npos);
  EXPECT_NE(refusal(larger).find("count was 2"), std::string::npos);
  EXPECT_NE(refusal(fewer).find("there were 3 sources"), std::string::npos);
  EXPECT_NE(refusal(weighted(3, 2, 5)).find("weight of source c was 1"), std::string::npos);
  EXPECT_NE(refusal(weighted(3, 2, 1), 4).find("seed"), std::string::npos);
  section.values.set("last", 3);
  EXPECT_NE(refusal(weighted(3, 2, 1)).find("source 3 of 3"), std::string::npos);
  EXPECT_NE(error_of([] {
              Mixture({{.name = "a", .count = 1}, {.name = "b", .count = 0}}, 1);
            }).find("source b"),
            std::string::npos);
  EXPECT_THROW(Mixture({}, 1), Error);
}

}  // namespace
}  // namespace hone
