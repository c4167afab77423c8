#include "kernels/lm_head/distill.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

struct Shape {
  int64_t R, V, D, Dt;
};
constexpr Shape shapes[] = {{1, 1, 1, 1}, {0, 7, 3, 2}, {1, 33, 5, 4}, {5, 200, 8, 17}, {40, 130, 33, 12}};
constexpr Divergence kinds[] = {{0, 1}, {1, 0.5}, {0.5, 1}, {0.1, 1.25}};

struct Inputs {
  Floats hidden, w, teacher_hidden, teacher_w, weight;
  explicit Inputs(const Shape& s)
      : hidden(normals({s.R, s.D}, 1, 1, 3)),
        w(normals({s.V, s.D}, 2, 1, 2)),
        teacher_hidden(normals({s.R, s.Dt}, 3)),
        teacher_w(normals({s.V, s.Dt}, 4)),
        weight(normals({s.R}, 5)) {}
  Distill call(Floats& divergence, const Divergence& kind) const {
    return {.divergence = divergence,
            .weight = weight,
            .hidden = hidden,
            .w = w,
            .teacher_hidden = teacher_hidden,
            .teacher_w = teacher_w,
            .kind = kind};
  }
};

TEST(DistillRow, IsTrlsLossAndGradient) {
  const std::string path = (source_folder() / "tests/golden/gkd.json").string();
  const Json cases = parse_json(read_file(path), path);
  size_t rows = 0;
  for (const Json& one : cases.as_array()) {
    const Json* const labels = one.at("input").find("labels");
    if (!labels || one.at("arguments").find("num_items_in_batch")) continue;
    const auto argument = [&](const char* name, double otherwise) {
      const Json* const given = one.at("arguments").find(name);
      return given ? given->as_double() : otherwise;
    };
    const Divergence kind{argument("beta", 0.5), 1 / argument("temperature", 1)};
    double sum = 0, count = 0;
    std::vector<std::vector<double>> gradients;
    for (size_t s = 0; s < labels->as_array().size(); ++s)
      for (size_t t = 0; t < labels->as_array()[s].as_array().size(); ++t) {
        if (labels->as_array()[s].as_array()[t].as_int() == -100) continue;
        const auto numbers = [&](const Json& of) {
          std::vector<double> out;
          for (const Json& number : of.as_array()[s].as_array()[t].as_array()) out.push_back(number.as_double());
          return out;
        };
        const std::vector<double> student = numbers(one.at("input").at("student_logits")),
                                  teacher = numbers(one.at("input").at("teacher_logits"));
        std::vector<double> gradient(student.size());
        sum += distill_row(student.data(), teacher.data(), std::ssize(student), kind, 0.25, gradient.data());
        const std::vector<double> expected = numbers(one.at("grad"));  // of the mean over 4 tokens
        for (size_t v = 0; v < expected.size(); ++v) EXPECT_NEAR(gradient[v], expected[v], 1e-9);
        ++count, ++rows;
      }
    EXPECT_EQ(count, 4);
    EXPECT_NEAR(sum / count, one.at("loss").as_double(), 1e-7);
  }
  EXPECT_EQ(rows, 32u);
}

TEST(DistillRow, EqualDistributionsHaveNeitherDivergenceNorGradient) {
  const std::vector<float> student = {1, -2, 0.5f, 30}, teacher = {3, 0, 2.5f, 32};
  for (const Divergence& kind : kinds) {
    std::vector<float> gradient(4, 9);
    EXPECT_NEAR(distill_row(student.data(), teacher.data(), 4, kind, 1, gradient.data()), 0, 1e-12);
    for (const float g : gradient) EXPECT_NEAR(g, 0, 1e-7);
  }
}

TEST(DistillRow, TokensThatBothExcludeDoNotCount) {
  constexpr float out = -std::numeric_limits<float>::infinity();
  const std::vector<float> student = {1, out, 2}, teacher = {0, out, 3}, short_student = {1, 2}, short_teacher = {0, 3};
  for (const Divergence& kind : kinds) {
    std::vector<float> gradient(3), short_gradient(2);
    EXPECT_EQ(distill_row(student.data(), teacher.data(), 3, kind, 1, gradient.data()),
              distill_row(short_student.data(), short_teacher.data(), 2, kind, 1, short_gradient.data()));
    EXPECT_EQ(gradient, (std::vector<float>{short_gradient[0], 0, short_gradient[1]}));
  }
}

constexpr TopRest rests[] = {TopRest::bucket, TopRest::renormalize, TopRest::ignore};

// The most likely tokens of a random teacher: K of them, fewer in some rows, in another order in others.
struct TopInputs {
  Ids ids;
  Floats logp;
  TopInputs(const Shape& s, int64_t K) : ids({s.R, K}), logp({s.R, K}) {
    const Floats logits = normals({s.R, s.V}, 8, 1, 2);
    for (int64_t r = 0; r < s.R; ++r) {
      std::vector<std::pair<float, int32_t>> all;
      double sum = 0;
      for (int64_t v = 0; v < s.V; ++v) {
        all.emplace_back(logits[r * s.V + v], static_cast<int32_t>(v));
        sum += std::exp(static_cast<double>(all.back().first));
      }
      std::ranges::sort(all, std::greater());
      if (r % 3 == 1) std::ranges::reverse(all.begin(), all.begin() + K);
      for (int64_t k = 0; k < K; ++k) {
        const bool absent = r % 4 == 2 && k > 0;
        const auto& [logit, id] = all[static_cast<size_t>(k)];
        ids[r * K + k] = absent ? -1 : id;
        logp[r * K + k] = absent ? 0 : static_cast<float>(static_cast<double>(logit) - std::log(sum));
      }
    }
  }
  Distill call(const Inputs& in, Floats& divergence, const Divergence& kind, TopRest rest) const {
    Distill out = in.call(divergence, kind);
    out.teacher_hidden = {};
    out.teacher_w = {};
    out.top_ids = ids;
    out.top_logp = logp;
    out.rest = rest;
    return out;
  }
};

// Cases of torch (tests/golden/make_distill_softcap.py): loss and gradients of the op with soft-caps of the logits.
TEST(Distill, SoftcapsAreTorchs) {
  const std::string path = (source_folder() / "tests/golden/distill_softcap.json").string();
  const Json cases = parse_json(read_file(path), path);
  ASSERT_EQ(cases.as_array().size(), 5u);
  for (const Json& one : cases.as_array()) {
    const auto number = [&](const char* name) { return one.at(name).as_double(name); };
    const auto matrix = [&](const char* name) {
      const JsonArray& rows = one.at(name).as_array();
      Floats out({std::ssize(rows), std::ssize(rows.front().as_array())});
      int64_t i = 0;
      for (const Json& row : rows)
        for (const Json& value : row.as_array()) out[i++] = static_cast<float>(value.as_double());
      return out;
    };
    const Floats hidden = matrix("hidden"), w = matrix("w"), weight = matrix("weight");
    const int64_t R = hidden.tensor().dim(0);
    Floats divergence({R}), dhidden({R, hidden.tensor().dim(1)}), dw({w.tensor().dim(0), w.tensor().dim(1)});
    Distill call{.divergence = divergence,
                 .dhidden = dhidden,
                 .dw = dw,
                 .weight = weight.tensor().view({R}),
                 .hidden = hidden,
                 .w = w,
                 .kind = {number("beta"), 1 / number("temperature")},
                 .softcap = static_cast<float>(number("softcap")),
                 .teacher_softcap = static_cast<float>(number("teacher_softcap"))};
    Floats teacher_hidden({1}), teacher_w({1}), top_logp({1});
    Ids top_ids({1});
    if (one.find("top_ids")) {
      top_logp = matrix("top_logp");
      const Floats ids = matrix("top_ids");
      top_ids = Ids({R, ids.tensor().dim(1)});
      for (int64_t i = 0; i < ids.tensor().size(); ++i) top_ids[i] = static_cast<int32_t>(ids[i]);
      call.top_ids = top_ids;
      call.top_logp = top_logp;
    } else {
      teacher_hidden = matrix("teacher_hidden");
      teacher_w = matrix("teacher_w");
      call.teacher_hidden = teacher_hidden;
      call.teacher_w = teacher_w;
    }
    distill(cpu(), call);
    EXPECT_TRUE(close(divergence, matrix("divergence"), {2e-6, 1e-5}));
    EXPECT_TRUE(close(dhidden, matrix("dhidden"), {5e-6, 2e-5}));
    EXPECT_TRUE(close(dw, matrix("dw"), {5e-6, 2e-5}));
  }
}

// Cases of torch (tests/golden/make_distill_top.py).
TEST(DistillTopRow, IsTorchsLossAndGradient) {
  const std::string path = (source_folder() / "tests/golden/distill_top.json").string();
  const Json cases = parse_json(read_file(path), path);
  ASSERT_EQ(cases.as_array().size(), 11u);
  for (const Json& one : cases.as_array()) {
    const std::string name = one.at("config").at("teacher_rest").as_string();
    const TopRest rest = name == "bucket" ? rests[0] : name == "renormalize" ? rests[1] : rests[2];
    const Json& in = one.at("input");
    double sum = 0;
    for (size_t s = 0; s < 2; ++s)
      for (size_t t = 0; t < 3; ++t) {
        if (in.at("labels").as_array()[s].as_array()[t].as_int() == -100) continue;
        const auto numbers = [&](const Json& of) {
          std::vector<double> out;
          for (const Json& number : of.as_array()[s].as_array()[t].as_array()) out.push_back(number.as_double());
          return out;
        };
        const std::vector<double> student = numbers(in.at("student_logits")), logp = numbers(in.at("teacher_top_logp")),
                                  expected = numbers(one.at("grad"));
        std::vector<int32_t> ids;
        for (const double id : numbers(in.at("teacher_top_ids"))) ids.push_back(static_cast<int32_t>(id));
        std::vector<double> gradient(student.size());
        sum += distill_top_row(student.data(), std::ssize(student), {ids.data(), logp.data(), std::ssize(ids)}, 1, rest,
                               0.25, gradient.data());
        for (size_t v = 0; v < expected.size(); ++v) EXPECT_NEAR(gradient[v], expected[v], 1e-9) << name;
      }
    EXPECT_NEAR(sum / 4, one.at("loss").as_double(), 1e-7) << name;
  }
}

// With every token there is nothing left over, and the treatments of the rest are the forward KL.
TEST(DistillTopRow, OfAllTokensIsTheForwardKl) {
  const std::vector<double> student = {1, -2, 0.5, 3}, logits = {0.5, 1, -1, 2};
  double lse = 0;
  for (const double z : logits) lse += std::exp(z);
  std::vector<double> logp;
  for (const double z : logits) logp.push_back(z - std::log(lse));
  const std::vector<int32_t> ids = {0, 1, 2, 3};
  std::vector<double> expected(4), gradient(4);
  const double full =
      distill_row(student.data(), logits.data(), 4, {.beta = 0, .inv_temperature = 0.5}, 1, expected.data());
  // The teacher's logits are divided by the temperature, too; stored log-probs are not.
  const double plain = distill_row(student.data(), logits.data(), 4, {.beta = 0}, 1, expected.data());
  EXPECT_NE(full, plain);
  for (const TopRest rest : rests) {
    EXPECT_NEAR(distill_top_row(student.data(), 4, {ids.data(), logp.data(), 4}, 1, rest, 1, gradient.data()), plain,
                1e-12);
    for (size_t v = 0; v < 4; ++v) EXPECT_NEAR(gradient[v], expected[v], 1e-12);
  }
}

TEST(DistillTopRow, AStudentThatExcludesTheRestHasAFiniteGradient) {
  const std::vector<double> student = {0, -4000, -5000};
  const int32_t id = 0;
  const double logp = std::log(0.75);
  std::vector<double> gradient(3);
  const double value = distill_top_row(student.data(), 3, {&id, &logp, 1}, 1, TopRest::bucket, 1, gradient.data());
  EXPECT_NEAR(value, 0.75 * std::log(0.75) + 0.25 * (std::log(0.25) + 4000), 1e-9);
  EXPECT_NEAR(gradient[0], 0.25, 1e-12);
  EXPECT_NEAR(gradient[1], -0.25, 1e-12);
  EXPECT_NEAR(gradient[2], 0, 1e-12);
}

TEST(DistillTopRow, WithoutTokensNothingIsLearned) {
  const std::vector<float> student = {1, 2};
  const int32_t id = -1;
  const float logp = 0;
  std::vector<float> gradient(2, 7);
  for (const TopRest rest : rests) {
    EXPECT_EQ(distill_top_row(student.data(), 2, {&id, &logp, 1}, 1, rest, 1, gradient.data()), 0);
    EXPECT_EQ(gradient, std::vector<float>(2, 0));
  }
}

[[maybe_unused]] const bool distill_case = op_cases().add("distill", [] {
  for (const Shape& s : shapes)
    for (const Divergence& kind : kinds) {
      const Inputs in(s);
      Floats divergence = poisoned({s.R}), dhidden = normals({s.R, s.D}, 6), dw = normals({s.V, s.D}, 7);
      Distill call = in.call(divergence, kind);
      expect_bodies_agree(distill, {1e-4, 1e-5}, call);
      call.dhidden = dhidden;
      expect_bodies_agree(distill, {1e-4, 1e-4}, call);
      call.dw = dw;
      expect_bodies_agree(distill, {1e-4, 1e-4}, call);
      call.softcap = 3;
      call.teacher_softcap = 2;
      expect_bodies_agree(distill, {1e-4, 1e-4}, call);
    }
  for (const Shape& s : shapes)
    for (const TopRest rest : rests) {
      const Inputs in(s);
      const TopInputs top(s, std::min<int64_t>(s.V, 6));
      Floats divergence = poisoned({s.R}), dhidden = normals({s.R, s.D}, 6), dw = normals({s.V, s.D}, 7);
      Distill call = top.call(in, divergence, {.inv_temperature = 1.25}, rest);
      expect_bodies_agree(distill, {1e-4, 1e-5}, call);
      call.dhidden = dhidden;
      call.dw = dw;
      expect_bodies_agree(distill, {1e-4, 1e-4}, call);
      call.softcap = 3;
      expect_bodies_agree(distill, {1e-4, 1e-4}, call);
    }
});

// Soft-caps of student and teacher: none, of either, of both.
constexpr std::pair<float, float> softcaps[] = {{0, 0}, {1.5f, 0}, {0, 1.5f}, {2, 1}};

TEST(Distill, GradientsAreFiniteDifferences) {
  const Shape s{4, 11, 5, 3};
  for (const Divergence& kind : kinds)
    for (const auto& [softcap, teacher_softcap] : softcaps) {
      Inputs in(s);
      Floats divergence({s.R}), dhidden({s.R, s.D}), dw({s.V, s.D});
      Distill call = in.call(divergence, kind);
      call.softcap = softcap;
      call.teacher_softcap = teacher_softcap;
      const Distill forward = call;
      call.dhidden = dhidden;
      call.dw = dw;
      distill(cpu(), call);
      const auto loss = [&] {
        distill(cpu(), forward);
        double sum = 0;
        for (int64_t r = 0; r < s.R; ++r) sum += static_cast<double>(in.weight[r]) * static_cast<double>(divergence[r]);
        return sum;
      };
      expect_gradient(loss, in.hidden, dhidden);
      expect_gradient(loss, in.w, dw);
    }
}

TEST(Distill, GradientsOfTheMostLikelyTokensAreFiniteDifferences) {
  const Shape s{5, 11, 5, 3};
  for (const TopRest rest : rests)
    for (const float softcap : {0.0f, 1.5f}) {
      Inputs in(s);
      const TopInputs top(s, 4);
      Floats divergence({s.R}), dhidden({s.R, s.D}), dw({s.V, s.D});
      Distill call = top.call(in, divergence, {.inv_temperature = 0.8}, rest);
      call.softcap = softcap;
      const Distill forward = call;
      call.dhidden = dhidden;
      call.dw = dw;
      distill(cpu(), call);
      const auto loss = [&] {
        distill(cpu(), forward);
        double sum = 0;
        for (int64_t r = 0; r < s.R; ++r) sum += static_cast<double>(in.weight[r]) * static_cast<double>(divergence[r]);
        return sum;
      };
      expect_gradient(loss, in.hidden, dhidden);
      expect_gradient(loss, in.w, dw);
    }
}

TEST(Distill, RefusesATokenOutsideOfTheVocabulary) {
  const Shape s{3, 9, 4, 4};
  const Inputs in(s);
  TopInputs top(s, 2);
  top.ids[2] = 9;
  Floats divergence({s.R});
  try {
    distill(cpu(), top.call(in, divergence, {}, TopRest::bucket));
    FAIL() << "token 9 of 9 was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("top_ids of row 1 has token 9; the vocabulary has 9 tokens"),
              std::string::npos)
        << error.what();
  }
}

TEST(Distill, RefusesAnotherVocabulary) {
  const Inputs student({2, 7, 3, 3}), teacher({2, 8, 3, 3});
  Floats divergence({2});
  Distill call = student.call(divergence, {});
  call.teacher_w = teacher.teacher_w;
  try {
    distill(cpu(), call);
    FAIL() << "two vocabularies were accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the teacher's vocabulary has 8 tokens, the student's has 7"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace hone::test
