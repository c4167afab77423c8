// The contract test of ops finds bodies that break an access description.
#include "tests/kernels/op_contract.h"

#include <gtest/gtest-spi.h>

namespace hone::test {
namespace {

struct CopyAndSum {
  Tensor y;    // [rows, dim], written
  Tensor sum;  // [rows, dim], added once
  Tensor x;    // [rows, dim]
  static constexpr auto access = op_access(written(&CopyAndSum::y), added_once(&CopyAndSum::sum), read(&CopyAndSum::x));
};

constexpr int64_t rows = 3, dim = 5;

// y = x and sum += x.
void copy_and_sum(const CopyAndSum& args) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < dim; ++i) {
      args.y.row<float>(r)[i] = args.x.row<float>(r)[i];
      args.sum.row<float>(r)[i] += args.x.row<float>(r)[i];
    }
}

template <class Body>
void check(Body body) {
  const Floats y = poisoned({rows, dim}, 2), sum = normals({rows, dim}, 1), x = normals({rows, dim}, 2, 1e-4f, 1);
  const CopyAndSum args{.y = y, .sum = sum, .x = x};
  CallCopy<CopyAndSum> full(args), zeroed(args);
  full.prepare(0xFF, false);
  zeroed.prepare(0x5A, true);
  body(full.args());
  body(zeroed.args());
  expect_contract(full, zeroed);
}

TEST(OpContract, ABodyThatDoesWhatItSaysPasses) { check(copy_and_sum); }

TEST(OpContract, AnElementThatIsNotWritten) {
  EXPECT_NONFATAL_FAILURE(check([](const CopyAndSum& args) {
                            const float before = args.y.row<float>(1)[4];
                            copy_and_sum(args);
                            args.y.row<float>(1)[4] = before;
                          }),
                          "of 15 written elements are not written");
}

TEST(OpContract, AnElementThatIsReadBeforeItIsWritten) {
  EXPECT_NONFATAL_FAILURE(check([](const CopyAndSum& args) {
                            args.y.row<float>(0)[0] += 1;
                            const float seen = args.y.row<float>(0)[0];
                            copy_and_sum(args);
                            args.y.row<float>(0)[0] = seen;
                          }),
                          "or depend on what they held");
}

TEST(OpContract, AWriteBetweenTheRows) {
  EXPECT_NONFATAL_FAILURE(check([](const CopyAndSum& args) {
                            copy_and_sum(args);
                            args.y.row<float>(0)[dim] = 0;
                          }),
                          "bytes were written that `access` does not name");
}

TEST(OpContract, AWriteBehindTheLastRow) {
  EXPECT_NONFATAL_FAILURE(check([](const CopyAndSum& args) {
                            copy_and_sum(args);
                            args.sum.row<float>(rows)[0] = 0;
                          }),
                          "bytes were written that `access` does not name");
}

TEST(OpContract, AWriteToAnOperand) {
  EXPECT_NONFATAL_FAILURE(check([](const CopyAndSum& args) {
                            copy_and_sum(args);
                            args.x.row<float>(0)[0] = 7;
                          }),
                          "bytes were written that `access` does not name");
}

TEST(OpContract, ASumThatIsWrittenInsteadOfAdded) {
  EXPECT_NONFATAL_FAILURE(check([](const CopyAndSum& args) {
                            copy_and_sum(args);
                            args.sum.row<float>(0)[0] = args.x.row<float>(0)[0];
                          }),
                          "are not what they held plus the sum");
}

TEST(OpContract, ASumThatIsAddedTwice) {
  EXPECT_NONFATAL_FAILURE(check([](const CopyAndSum& args) {
                            copy_and_sum(args);
                            copy_and_sum(args);
                          }),
                          "are not what they held plus the sum, rounded once");
}

}  // namespace
}  // namespace hone::test
