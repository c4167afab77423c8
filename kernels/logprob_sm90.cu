#include "kernels/logprob_rows.cuh"

namespace hone {

bool head_sums_direct(Context&, const HeadRows&, Tensor, Tensor) { return false; }
bool head_exponentials_direct(Context&, const HeadRows&, Tensor, Tensor, Tensor) { return false; }
bool head_gradient_direct(Context&, const HeadRows&, Tensor, Tensor, Tensor) { return false; }

}  // namespace hone
