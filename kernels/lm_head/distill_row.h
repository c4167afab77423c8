#pragma once
// The generalized Jensen-Shannon divergence between a teacher and a student for one token (Agarwal et al. 2023, eq. 1),
// in TRL's form. With p the student's and q the teacher's softmax(logits / temperature), m = (1 - beta) p + beta q:
//   beta = 0      KL(q || p), forward KL
//   beta = 1      KL(p || q), reverse KL
//   0 < beta < 1  beta KL(q || m) + (1 - beta) KL(p || m)
#include <cstdint>

namespace hone {

struct Divergence {
  double beta = 0.5;
  double inv_temperature = 1;
};

// Returns the divergence of two rows of V logits (or log-probs). Unless null, gradient [V] becomes weight times the
// gradient with respect to the student's logits; it may be `student` itself. Sums are in double and in the order of the
// vocabulary. A token that only one of them excludes (logit -inf) may make the result infinite.
double distill_row(const float* student, const float* teacher, int64_t V, const Divergence& divergence, double weight,
                   float* gradient);
double distill_row(const double* student, const double* teacher, int64_t V, const Divergence& divergence, double weight,
                   double* gradient);

// The most likely tokens of a teacher for one token, with their log-probs. Ids are different; those past the last are
// -1.
template <class T>
struct TopTokens {
  const int32_t* ids = nullptr;
  const T* logp = nullptr;
  int64_t count = 0;
};

// How the probability counts that a teacher's most likely tokens leave over.
//   bucket       it is the probability of one more token, which stands for all others of teacher and student
//   renormalize  the teacher's probabilities are divided by their sum
//   ignore       the others add nothing: the sum over the given tokens
enum class TopRest : uint8_t { bucket, renormalize, ignore };

// As distill_row() for a teacher of which only the most likely tokens are known: the forward KL. With q the teacher's
// probabilities of the tokens K, Q their sum, p the student's softmax(logits * inv_temperature) and P its sum over K:
//   sum over K of q log(q / p), with bucket plus (1 - Q) log((1 - Q) / (1 - P))
// The gradient is (sum of all q) p - q, where the bucket's q is shared among the other tokens as the student shares its
// own. If K has every token, nothing is left over. Without any token, or if all q are 0, divergence and gradient are 0.
double distill_top_row(const float* student, int64_t V, const TopTokens<float>& teacher, double inv_temperature,
                       TopRest rest, double weight, float* gradient);
double distill_top_row(const double* student, int64_t V, const TopTokens<double>& teacher, double inv_temperature,
                       TopRest rest, double weight, double* gradient);

}  // namespace hone
