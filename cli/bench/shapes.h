#pragma once
// Models of the benches: shapes by name, and random weights.
#include <memory>
#include <string>

#include "model/model.h"

namespace hone {

// Makes the model of a name of known_shapes() or of a config.json. Its parameters have no memory yet.
std::unique_ptr<Model> make_bench_model(const std::string& shape);
// Fills the parameters with random weights. On a GPU one array of random numbers is copied repeatedly, which is faster.
void fill_weights(Context& context, Model& model);

}  // namespace hone
