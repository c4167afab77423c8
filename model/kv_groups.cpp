#include "model/kv_groups.h"

#include <algorithm>

#include "core/base/check.h"

namespace hone {
namespace {

struct Plane {
  size_t number;  // as the layers gave it
  KvGroupShape shape;
  size_t group = 0, index_in_group = 0;
};

bool equal_rows(const KvGroupShape& a, const KvGroupShape& b) {
  return a.num_kv_heads == b.num_kv_heads && a.key_dim == b.key_dim && a.value_dim == b.value_dim;
}

std::vector<Plane> planes_of(std::span<const KvPlace> layers) {
  std::vector<Plane> planes;
  for (const KvPlace& layer : layers) {
    if (!layer.kv_layer) continue;
    const auto found = std::ranges::find(planes, *layer.kv_layer, &Plane::number);
    if (found == planes.end()) {
      planes.push_back({*layer.kv_layer, layer.shape});
      continue;
    }
    KvGroupShape& shared = found->shape;
    HONE_CHECK(equal_rows(shared, layer.shape), "layers that share keys and values have ", shared.num_kv_heads,
               " KV heads of dimension ", shared.key_dim, " and ", layer.shape.num_kv_heads, " of dimension ",
               layer.shape.key_dim, "; they must be equal");
    const bool sees_all = shared.window == 0 || layer.shape.window == 0;
    shared.window = sees_all ? 0 : std::max(shared.window, layer.shape.window);
  }
  return planes;
}

}  // namespace

std::vector<KvGroupShape> assign_kv_layers(std::span<const KvPlace> layers) {
  std::vector<Plane> planes = planes_of(layers);
  std::vector<KvGroupShape> groups;
  for (Plane& plane : planes) {
    plane.shape.planes = 0;
    const auto found = std::ranges::find_if(groups, [&](const KvGroupShape& group) {
      return equal_rows(group, plane.shape) && group.window == plane.shape.window;
    });
    plane.group = static_cast<size_t>(found - groups.begin());
    if (found == groups.end()) groups.push_back(plane.shape);
    plane.index_in_group = static_cast<size_t>(groups[plane.group].planes++);
  }
  std::vector<size_t> first{0};  // plane of each group
  for (const KvGroupShape& group : groups) first.push_back(first.back() + static_cast<size_t>(group.planes));
  for (const KvPlace& layer : layers) {
    if (!layer.kv_layer) continue;
    const Plane& plane = *std::ranges::find(planes, *layer.kv_layer, &Plane::number);
    *layer.kv_layer = first[plane.group] + plane.index_in_group;
  }
  return groups;
}

}  // namespace hone
