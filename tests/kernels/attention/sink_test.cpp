// Attention sinks: a logit per head that joins the softmax and has no value.
#include <gtest/gtest.h>

#include <numeric>

#include "core/base/parallel_for.h"
#include "kernels/attention/attention.h"
#include "tests/kernels/adds_once_check.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

struct SinkCase {
  std::vector<int32_t> lengths;
  int64_t heads = 1, kv_heads = 1, dim = 8, window = 0;
  float softcap = 0, level = 0;  // level: added to the sinks

  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  AttentionShape shape() const {
    return {.scale = 1 / std::sqrt(static_cast<float>(dim)),
            .window = window,
            .max_length = *std::ranges::max_element(lengths),
            .softcap = softcap};
  }
  Ids offsets() const {
    Ids out({static_cast<int64_t>(lengths.size()) + 1});
    for (size_t s = 0; s < lengths.size(); ++s)
      out[static_cast<int64_t>(s) + 1] = out[static_cast<int64_t>(s)] + lengths[s];
    return out;
  }
};

const std::vector<SinkCase> sink_cases = {
    {{1}, 1, 1, 8},
    {{0, 5, 0, 3}, 3, 1, 16},
    {{7, 64, 65, 130}, 2, 2, 24},
    {{33, 100}, 6, 2, 64, 17},
    {{129}, 4, 1, 80, 64, 0, 60},      // the sink is far above all scores
    {{70, 3}, 8, 1, 128, 1, 0, -200},  // far below
    {{66}, 2, 1, 256},
    {{40, 9}, 6, 2, 16, 17, 0.7f, 1},
};

struct SinkCall {
  explicit SinkCall(const SinkCase& c)
      : q(normals({c.tokens(), c.heads, c.dim}, 7)),
        k(normals({c.tokens(), c.kv_heads, c.dim}, 8, 1, 24)),
        v(normals({c.tokens(), c.kv_heads, c.dim}, 9, 1, 40)),
        dout(normals({c.tokens(), c.heads, c.dim}, 10)),
        out(poisoned({c.tokens(), c.heads, c.dim})),
        lse(poisoned({c.tokens(), c.heads})),
        sinks(normals({c.heads}, 11, 2)),
        offsets(c.offsets()),
        shape(c.shape()) {
    for (int64_t h = 0; h < c.heads; ++h) sinks[h] += c.level;
  }
  AttentionForward forward() const {
    return {.out = out, .lse = lse, .q = q, .k = k, .v = v, .offsets = offsets, .shape = shape, .sinks = sinks};
  }
  Floats q, k, v, dout, out, lse, sinks;
  Ids offsets;
  AttentionShape shape;
};

struct Gradients {
  explicit Gradients(const SinkCase& c)
      : dq(poisoned({c.tokens(), c.heads, c.dim})),
        dk(poisoned({c.tokens(), c.kv_heads, c.dim}, 8)),
        dv(poisoned({c.tokens(), c.kv_heads, c.dim}, 40)),
        dsinks({c.heads}) {}
  AttentionBackward of(const SinkCall& call) const {
    return {.dq = dq,
            .dk = dk,
            .dv = dv,
            .dout = call.dout,
            .out = call.out,
            .lse = call.lse,
            .q = call.q,
            .k = call.k,
            .v = call.v,
            .offsets = call.offsets,
            .shape = call.shape,
            .sinks = call.sinks,
            .dsinks = dsinks};
  }
  Floats dq, dk, dv, dsinks;
};

// One query by the formula, in double: the log-sum-exp, sink included.
double textbook(const SinkCase& c, const SinkCall& call, int64_t begin, int64_t t, int64_t h,
                std::vector<double>& out) {
  const int64_t kv = h / (c.heads / c.kv_heads);
  double total = std::exp(double{call.sinks[h]});
  out.assign(static_cast<size_t>(c.dim), 0);
  for (int64_t j = begin; j <= t; ++j) {
    if (c.window > 0 && t - j >= c.window) continue;
    double score = 0;
    for (int64_t i = 0; i < c.dim; ++i)
      score += double{call.q[(t * c.heads + h) * c.dim + i]} * call.k[(j * c.kv_heads + kv) * c.dim + i];
    score /= std::sqrt(static_cast<double>(c.dim));
    if (c.softcap > 0) score = c.softcap * std::tanh(score / c.softcap);
    total += std::exp(score);
    for (int64_t i = 0; i < c.dim; ++i)
      out[static_cast<size_t>(i)] += std::exp(score) * call.v[(j * c.kv_heads + kv) * c.dim + i];
  }
  for (double& x : out) x /= total;
  return std::log(total);
}

TEST(AttentionSink, IsAKeyWithoutAValue) {
  for (const SinkCase& c : sink_cases) {
    const SinkCall call(c);
    std::vector<double> out, sums;
    for (size_t s = 0; s < c.lengths.size(); ++s)
      for (int64_t t = call.offsets[static_cast<int64_t>(s)]; t < call.offsets[static_cast<int64_t>(s) + 1]; ++t)
        for (int64_t h = 0; h < c.heads; ++h) {
          std::vector<double> row;
          sums.push_back(textbook(c, call, call.offsets[static_cast<int64_t>(s)], t, h, row));
          out.insert(out.end(), row.begin(), row.end());
        }
    const auto at = [](const std::vector<double>& numbers) {
      return [&numbers](int64_t i) { return numbers[static_cast<size_t>(i)]; };
    };
    each_cpu_body(attention_forward, [&](auto run, const std::string&) {
      if (!run(call.forward())) return;
      for (int64_t i = 0; i < call.out.size(); ++i)
        ASSERT_NEAR(call.out[i], at(out)(i), 2e-6 + 1e-5 * std::fabs(at(out)(i))) << i;
      for (int64_t i = 0; i < call.lse.size(); ++i)
        ASSERT_NEAR(call.lse[i], at(sums)(i), 2e-6 + 1e-6 * std::fabs(at(sums)(i))) << i;
    });
  }
}

TEST(AttentionSink, BodiesAgreeAndKeepTheContract) {
  for (const SinkCase& c : sink_cases) {
    const SinkCall call(c);
    expect_bodies_agree(attention_forward, {1e-5, 2e-6}, call.forward());
    const Gradients to(c);
    expect_bodies_agree(attention_backward, {1e-4, 2e-5}, to.of(call));
  }
}

TEST(AttentionSink, OfMinusInfinityChangesNoBit) {
  for (const SinkCase& c : sink_cases) {
    SinkCall call(c);
    for (int64_t h = 0; h < c.heads; ++h) call.sinks[h] = -INFINITY;
    each_cpu_body(attention_forward, [&](auto run, const std::string&) {
      AttentionForward args = call.forward();
      if (!run(args)) return;
      const Floats out = call.out, lse = call.lse;
      args.sinks = {};
      run(args);
      EXPECT_TRUE(close(call.out, out, {0, 0}));
      EXPECT_TRUE(close(call.lse, lse, {0, 0}));
    });
  }
}

TEST(AttentionSink, GradientsAreFiniteDifferences) {
  for (const SinkCase& c :
       {SinkCase{{5, 0, 9}, 4, 2, 8}, SinkCase{{12}, 2, 2, 10, 4}, SinkCase{{7}, 2, 1, 8, 0, 1.5f}}) {
    SinkCall call(c);
    const auto loss = [&] {
      attention_forward(cpu(), call.forward());
      double sum = 0;
      for (int64_t i = 0; i < call.out.size(); ++i) sum += double{call.out[i]} * call.dout[i];
      return sum;
    };
    loss();
    const Floats out = call.out, lse = call.lse;
    each_cpu_body(attention_backward, [&](auto run, const std::string&) {
      Gradients to(c);
      call.out = out;
      call.lse = lse;
      if (!run(to.of(call))) return;
      expect_gradient(loss, call.q, to.dq);
      expect_gradient(loss, call.k, to.dk);
      expect_gradient(loss, call.v, to.dv);
      expect_gradient(loss, call.sinks, to.dsinks);
    });
  }
}

TEST(AttentionSink, GradientIsAddedOnceAndDoesNotDependOnThreads) {
  const SinkCase c{{200, 57}, 6, 2, 16, 30};
  const SinkCall call(c);
  attention_forward(cpu(), call.forward());
  const int threads = num_threads();
  each_cpu_body(attention_backward, [&](auto run, const std::string&) {
    std::vector<Floats> results;
    for (const int count : {1, 3}) {
      set_num_threads(count);
      Gradients to(c);
      if (!run(to.of(call))) break;
      results.push_back(to.dsinks);
      EXPECT_TRUE(close(results.back(), results.front(), {0, 0})) << count << " threads";
    }
    set_num_threads(threads);
    if (results.empty()) return;
    expect_adds_once({Floats({c.heads})}, [&](std::vector<Floats>& grads) {
      Gradients to(c);
      AttentionBackward args = to.of(call);
      args.dsinks = grads[0];
      run(args);
    });
  });
}

// The cache of one sequence, its blocks in descending order.
TEST(AttentionSink, PagedAndDecodedQueriesHaveTheBitsOfPackedOnes) {
  for (const int64_t window : {0, 20}) {
    const SinkCase c{{150}, 6, 2, 16, window};
    const SinkCall call(c);
    const int64_t size = 16, blocks = 10, row = c.kv_heads * c.dim;
    Floats k = poisoned({blocks * size, c.kv_heads, c.dim}), v = k;
    Ids table({1, blocks});
    for (int64_t b = 0; b < blocks; ++b) table[b] = static_cast<int32_t>(blocks - 1 - b);
    for (int64_t j = 0; j < c.tokens(); ++j)
      for (int64_t i = 0; i < row; ++i) {
        const int64_t slot = int64_t{table[j / size]} * size + j % size;
        k[slot * row + i] = call.k[j * row + i];
        v[slot * row + i] = call.v[j * row + i];
      }
    each_cpu_body(attention_paged, [&](auto run, const std::string& name) {
      each_cpu_body(attention_forward, [&](auto packed, const std::string& of) {
        if (of == name) packed(call.forward());
      });
      for (const int64_t chunk : {1, 7}) {
        Floats out = poisoned({c.tokens(), c.heads, c.dim});
        for (int64_t done = 0; done < c.tokens(); done += chunk) {
          const int64_t count = std::min(chunk, c.tokens() - done);
          const Ids lengths({1}, static_cast<int32_t>(done + count));
          Ids offsets({2});
          offsets[1] = static_cast<int32_t>(count);
          run({.out = out.tensor().rows(done, count),
               .q = call.q.tensor().rows(done, count),
               .cache = {.k = k, .v = v, .block_table = table, .lengths = lengths, .block_size = size},
               .offsets = offsets,
               .shape = c.shape(),
               .sinks = call.sinks});
        }
        EXPECT_TRUE(close(out, call.out, {0, 0})) << name << ", chunks of " << chunk << ", window " << window;
      }
    });
  }
}

TEST(AttentionSink, RefusesArgumentsThatDoNotFit) {
  const SinkCase c{{4}, 4, 2, 8};
  const SinkCall call(c);
  AttentionForward args = call.forward();
  const Floats three({3});
  args.sinks = three;
  EXPECT_THROW(attention_forward(cpu(), args), Error);
  attention_forward(cpu(), call.forward());
  const Gradients to(c);
  AttentionBackward backward = to.of(call);
  backward.sinks = {};
  EXPECT_THROW(attention_backward(cpu(), backward), Error);
  backward = to.of(call);
  backward.dsinks = three;
  EXPECT_THROW(attention_backward(cpu(), backward), Error);
}

}  // namespace
}  // namespace hone::test
