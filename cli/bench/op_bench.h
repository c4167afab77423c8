#pragma once
// Speed of the bodies of ops, compared with the limits of this machine. A file op_NAME.cpp adds its cases to
// bench_cases(). Figures of a busy machine are low and uneven; ratios of neighboring rows are more stable.
#include <functional>
#include <string>
#include <vector>

#include "cli/bench/machine_limits.h"
#include "kernels/op.h"

namespace hone {

// One op at one shape. Its tensors live in the scratch memory of `context`.
struct BenchCase {
  struct Body {
    std::string name;
    std::function<void()> run;
  };
  std::string op, shape;
  double flops = 0, bytes = 0;  // least work of one run
  std::vector<Body> bodies;     // another op beside it has a name in brackets
};
using BenchCases = std::function<std::vector<BenchCase>(Context&)>;
Registry<BenchCases>& bench_cases();

// A case with the bodies of op for the context's device that support the arguments. The specification is left out.
template <class... A>
BenchCase bench_case(const Op<void(A...)>& op, Context& context, std::string shape, double flops, double bytes,
                     std::type_identity_t<A>... arguments) {
  BenchCase out{std::string(op.name()), std::move(shape), flops, bytes, {}};
  for (size_t i = 0; i < op.bodies().size(); ++i)
    if (const auto& body = op.bodies()[i]; body.device == context.kind() &&
                                           std::string_view(body.name) != "specification" &&
                                           op.supported(i, arguments...))
      out.bodies.push_back({body.name, [&op, &context, i, arguments...] { op.run_body(i, context, arguments...); }});
  return out;
}

struct BenchRow {
  std::string op, shape, body;
  double seconds = 0;            // median of the repeats; on a GPU the runs are queued together
  double flops = 0, bytes = 0;   // per second
  double roofline_fraction = 0;  // least time by the limits / seconds; above 1 if the data fit a cache
  bool compute_bound = false;    // true: arithmetic is the limit; false: memory
  double beside = 0;  // speed over that of the op beside it, whose body has a name in brackets; 0: there is none
};
// Runs all cases of the registry entries whose name contains `filter`. Each body is repeated for about `seconds`.
std::vector<BenchRow> run_bench(Context& context, const MachineLimits& limits, const std::string& filter = "",
                                double seconds = 0.3);

// The rows as an aligned text table. `machine` names the machine of the limits in the first line.
std::string bench_table(const MachineLimits& limits, const std::vector<BenchRow>& rows,
                        const std::string& machine = {});

}  // namespace hone
