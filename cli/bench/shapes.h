#pragma once
// Model shapes of the benches by name, and random weights.
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"

namespace hone {

std::vector<std::string> model_bench_shapes();
// Makes the model of a name of model_bench_shapes() or of a config.json. Its parameters have no memory yet.
std::unique_ptr<Model> make_bench_model(const std::string& shape);
// Fills the parameters with random weights. On a GPU one array of random numbers is copied repeatedly, which is faster.
void fill_weights(Context& context, Model& model);

}  // namespace hone
