// The contract test of all ops: each has a specification on the CPU, and its bodies agree with it.
#include "kernels/op.h"

#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone {

static void PrintTo(OpBase* op, std::ostream* out) { *out << op->name(); }  // for GoogleTest's messages

namespace test {
namespace {

class EveryOp : public ::testing::TestWithParam<OpBase*> {};

TEST_P(EveryOp, HasASpecificationOnTheCpu) {
  const auto& bodies = GetParam()->bodies();
  EXPECT_TRUE(std::ranges::any_of(bodies, [](const OpBase::BodyInfo& body) {
    return body.device == DeviceKind::cpu && std::string_view(body.name) == "specification" && body.priority == 0;
  }));
}

TEST_P(EveryOp, BodiesAgreeWithTheSpecification) {
  const std::string name(GetParam()->name());
  const auto* run = op_cases().find(name);
  ASSERT_TRUE(run) << name << " has no case: add one to op_cases() beside its tests";
  (*run)();
  EXPECT_EQ(GetParam()->has_access(), checked_contracts().contains(name))
      << name << ": its case must call expect_bodies_agree() with the argument struct";
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, ::testing::ValuesIn(OpBase::all()),
                         [](const auto& tested) { return std::string(tested.param->name()); });

TEST(OpCases, NameOpsThatExist) {
  for (const std::string& name : op_cases().names())
    EXPECT_TRUE(std::ranges::any_of(OpBase::all(), [&](const OpBase* op) { return op->name() == name; }))
        << "there is no op " << name;
}

// An op of this test only.
constinit Op<void(Tensor, int)> pick{"test_pick"};

TEST(Op, RunsTheSupportedBodyOfHighestPriorityThenName) {
  static std::string_view ran;
  const auto body = [](const char* name, DeviceKind device, Op<void(Tensor, int)>::Run run, int priority) {
    return Op<void(Tensor, int)>::Body{name, device, run, priority};
  };
  auto only_even = body(
      "even", DeviceKind::cpu, [](Context&, Tensor, int) { ran = "even"; }, 5);
  only_even.supports = [](const Tensor&, const int& n) { return n % 2 == 0; };
  EXPECT_THROW(pick(cpu(), {}, 1), Error);
  pick.add(body(
      "b", DeviceKind::cpu, [](Context&, Tensor, int) { ran = "b"; }, 1));
  pick.add(body(
      "a", DeviceKind::cpu, [](Context&, Tensor, int) { ran = "a"; }, 1));
  pick.add(body(
      "elsewhere", DeviceKind::cuda, [](Context&, Tensor, int) { ran = "elsewhere"; }, 9));
  pick.add(only_even);
  pick(cpu(), {}, 1);
  EXPECT_EQ(ran, "a");
  pick(cpu(), {}, 2);
  EXPECT_EQ(ran, "even");
}

}  // namespace
}  // namespace test
}  // namespace hone
