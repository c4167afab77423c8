#include "kernels/lm_head/distill_row.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace hone {
namespace {

template <class T>
double log_sum_exp_of(const T* logits, int64_t V, double factor) {
  const double max = static_cast<double>(*std::max_element(logits, logits + V)) * factor;
  double sum = 0;
  for (int64_t v = 0; v < V; ++v) sum += std::exp(static_cast<double>(logits[v]) * factor - max);
  return max + std::log(sum);
}

// p log(p / m), where a token without probability counts 0.
double weighted(double log_p, double log_m) {
  const double p = std::exp(log_p);
  return p == 0 ? 0 : p * (log_p - log_m);
}

// The two distributions of a row, and the gradient. For p: D's derivative with respect to log p at fixed other
// probabilities is p * slope, and the softmax turns it into p * (slope - sum of p slope).
template <class T>
struct Row {
  const T *student, *teacher;
  double factor, beta, student_lse, teacher_lse;

  double log_p(int64_t v) const { return static_cast<double>(student[v]) * factor - student_lse; }
  double log_q(int64_t v) const { return static_cast<double>(teacher[v]) * factor - teacher_lse; }
  double log_mixture(int64_t v) const { return std::log((1 - beta) * std::exp(log_p(v)) + beta * std::exp(log_q(v))); }

  double term(int64_t v) const {
    if (beta == 0) return weighted(log_q(v), log_p(v));
    if (beta == 1) return weighted(log_p(v), log_q(v));
    const double log_m = log_mixture(v);
    return beta * weighted(log_q(v), log_m) + (1 - beta) * weighted(log_p(v), log_m);
  }
  // p log(p / m): the part of the sum that p weighs, for beta above 0.
  double student_term(int64_t v) const { return weighted(log_p(v), beta == 1 ? log_q(v) : log_mixture(v)); }
  double derivative(int64_t v, double student_sum) const {
    if (beta == 0) return std::exp(log_p(v)) - std::exp(log_q(v));
    const double scale = beta == 1 ? 1 : 1 - beta;
    return scale * (student_term(v) - std::exp(log_p(v)) * student_sum);
  }
};

template <class T>
double run_row(const T* student, const T* teacher, int64_t V, const Divergence& divergence, double weight,
               T* gradient) {
  if (V == 0) return 0;
  const double factor = divergence.inv_temperature;
  const Row<T> row{.student = student,
                   .teacher = teacher,
                   .factor = factor,
                   .beta = divergence.beta,
                   .student_lse = log_sum_exp_of(student, V, factor),
                   .teacher_lse = log_sum_exp_of(teacher, V, factor)};
  double sum = 0, student_sum = 0;
  for (int64_t v = 0; v < V; ++v) {
    sum += row.term(v);
    if (gradient && row.beta != 0) student_sum += row.student_term(v);
  }
  for (int64_t v = 0; gradient && v < V; ++v)
    gradient[v] = static_cast<T>(weight * factor * row.derivative(v, student_sum));
  return sum;
}

// log(exp(a) + exp(b)).
double log_add(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return std::isinf(low) ? high : high + std::log1p(std::exp(low - high));
}

// The log-sum-exp of the logits whose ids `top`, in order of ids, does not name; -inf if it names all.
template <class T>
double log_sum_exp_without(const T* logits, int64_t V, double factor,
                           const std::vector<std::pair<int32_t, double>>& top) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  const auto each = [&](auto visit) {
    auto next = top.begin();
    for (int64_t v = 0; v < V; ++v) {
      if (next != top.end() && next->first == v)
        ++next;
      else
        visit(static_cast<double>(logits[v]) * factor);
    }
  };
  double max = none, sum = 0;
  each([&](double z) { max = std::max(max, z); });
  if (max == none) return none;
  each([&](double z) { sum += std::exp(z - max); });
  return max + std::log(sum);
}

template <class T>
double run_top_row(const T* student, int64_t V, const TopTokens<T>& teacher, double factor, TopRest rest, double weight,
                   T* gradient) {
  std::vector<std::pair<int32_t, double>> top;  // id and q
  double sum_q = 0;
  for (int64_t i = 0; i < teacher.count; ++i) {
    if (teacher.ids[i] < 0) continue;
    top.emplace_back(teacher.ids[i], std::exp(static_cast<double>(teacher.logp[i])));
    sum_q += top.back().second;
  }
  if (sum_q == 0) {
    for (int64_t v = 0; gradient && v < V; ++v) gradient[v] = 0;
    return 0;
  }
  std::ranges::sort(top);
  if (rest == TopRest::renormalize) {
    for (auto& [id, q] : top) q /= sum_q;
    sum_q = 1;
  }
  const bool has_rest = rest == TopRest::bucket && std::ssize(top) < V;
  const double rest_q = has_rest ? std::max(0.0, 1 - sum_q) : 0, all_q = sum_q + rest_q;
  const double rest_lse = log_sum_exp_without(student, V, factor, top);
  double lse = rest_lse;
  for (const auto& [id, q] : top) lse = log_add(lse, static_cast<double>(student[id]) * factor);
  double sum = rest_q == 0 ? 0 : rest_q * (std::log(rest_q) - (rest_lse - lse));
  for (const auto& [id, q] : top)
    if (q != 0) sum += q * (std::log(q) - (static_cast<double>(student[id]) * factor - lse));
  if (!gradient) return sum;
  auto next = top.begin();
  for (int64_t v = 0; v < V; ++v) {
    const double z = static_cast<double>(student[v]) * factor;
    const bool named = next != top.end() && next->first == v;
    double q = rest_q == 0 ? 0 : rest_q * std::exp(z - rest_lse);
    if (named) q = (next++)->second;
    gradient[v] = static_cast<T>(weight * factor * (all_q * std::exp(z - lse) - q));
  }
  return sum;
}

}  // namespace

double distill_row(const float* student, const float* teacher, int64_t V, const Divergence& divergence, double weight,
                   float* gradient) {
  return run_row(student, teacher, V, divergence, weight, gradient);
}
double distill_row(const double* student, const double* teacher, int64_t V, const Divergence& divergence, double weight,
                   double* gradient) {
  return run_row(student, teacher, V, divergence, weight, gradient);
}
double distill_top_row(const float* student, int64_t V, const TopTokens<float>& teacher, double inv_temperature,
                       TopRest rest, double weight, float* gradient) {
  return run_top_row(student, V, teacher, inv_temperature, rest, weight, gradient);
}
double distill_top_row(const double* student, int64_t V, const TopTokens<double>& teacher, double inv_temperature,
                       TopRest rest, double weight, double* gradient) {
  return run_top_row(student, V, teacher, inv_temperature, rest, weight, gradient);
}

}  // namespace hone
