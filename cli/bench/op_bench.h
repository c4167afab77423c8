#pragma once
// How fast the bodies of operations are, beside what this machine could do. Cases join bench_cases() by themselves: a
// file of cases for an op is one more bench_NAME.cpp. A machine that others use at the same time gives low and uneven
// figures; ratios of neighbouring rows last longer than rows.
#include <functional>
#include <string>
#include <vector>

#include "cli/bench/machine_limits.h"
#include "kernels/op.h"

namespace hone {

// One operation at one shape. Its tensors live as long as `context`'s scratch does.
struct BenchCase {
  struct Body {
    std::string name;
    std::function<void()> run;
  };
  std::string op, shape;
  double flops = 0, bytes = 0;  // what one run must compute and move at least
  std::vector<Body> bodies;
};
using BenchCases = std::function<std::vector<BenchCase>(Context&)>;
Registry<BenchCases>& bench_cases();

// A case whose bodies are those of op on the context's device that take the arguments; the specification is left out.
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
  double seconds = 0;            // median of the repeats; on a GPU of runs one after the other
  double flops = 0, bytes = 0;   // a second
  double roofline_fraction = 0;  // of the least time that the limits allow; above 1 where the data fit a cache
  bool compute_bound = false;    // which limit that is: arithmetic, else reading
};
// Every case of the registry entries whose name contains `filter`, each body repeated for about `seconds`.
std::vector<BenchRow> run_bench(Context& context, const MachineLimits& limits, const std::string& filter = "",
                                double seconds = 0.3);

// Rows as an aligned text table, below `machine`, a line that says what the limits are of.
std::string bench_table(const MachineLimits& limits, const std::vector<BenchRow>& rows,
                        const std::string& machine = {});

}  // namespace hone
