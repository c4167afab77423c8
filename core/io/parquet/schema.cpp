#include "core/io/parquet/schema.h"

#include <set>

#include "core/base/check.h"

namespace hone::parquet {
namespace {

constexpr int kMaxDepth = 64;

// Levels and name of the place where an element stands.
struct Place {
  std::string path;
  int definition = 0, repetition = 0, depth = 0;
};

class SchemaBuilder {
 public:
  explicit SchemaBuilder(const std::vector<SchemaElement>& elements) : elements_(elements) {}

  Schema build() {
    const SchemaElement& root = take();
    HONE_CHECK(!root.type, "the schema has no columns");
    out_.row = members(root, {});
    HONE_CHECK(next_ == elements_.size(), "the schema has ", elements_.size(), " elements, its tree ", next_);
    return std::move(out_);
  }

 private:
  const SchemaElement& take() {
    HONE_CHECK(next_ < elements_.size(), "the schema ends early");
    return elements_[next_++];
  }
  // The element that comes next.
  const SchemaElement& peek() const {
    HONE_CHECK(next_ < elements_.size(), "the schema ends early");
    return elements_[next_];
  }

  // The place of an element in `in`, after its own repetition.
  static Place inside(const Place& in, const SchemaElement& element) {
    Place out{.path = in.path.empty() ? element.name : in.path + "." + element.name,
              .definition = in.definition + (element.repetition == Repetition::required ? 0 : 1),
              .repetition = in.repetition + (element.repetition == Repetition::repeated ? 1 : 0),
              .depth = in.depth + 1};
    HONE_CHECK(out.depth <= kMaxDepth, "column ", out.path, " is nested more than ", kMaxDepth, " deep");
    return out;
  }

  // The next element with all below it.
  Shape element(const Place& in) {
    const SchemaElement& element = take();
    const Place place = inside(in, element);
    if (element.repetition != Repetition::repeated) {
      Shape out = content(element, place);
      out.nullable = element.repetition == Repetition::optional;
      out.defined = place.definition;
      return out;
    }
    // A repeated element without an annotated parent is a list that is never null.
    return list_of(element.name, place, content(element, place));
  }

  Shape list_of(const std::string& name, const Place& place, Shape item) {
    Shape out;
    out.kind = Shape::Kind::list;
    out.name = name;
    out.element_definition = place.definition;
    out.element_repetition = place.repetition;
    out.first_leaf = item.first_leaf;
    out.num_leaves = item.num_leaves;
    out.children.push_back(std::move(item));
    return out;
  }

  // What an element holds if it is not null.
  Shape content(const SchemaElement& element, const Place& place) {
    if (element.type) return leaf(element, place);
    const Meaning meaning = element.annotation.meaning;
    if ((meaning == Meaning::list || meaning == Meaning::map) && element.num_children == 1 &&
        peek().repetition == Repetition::repeated)
      return annotated(element, place);
    return members(element, place);
  }

  Shape leaf(const SchemaElement& element, const Place& place) {
    HONE_CHECK(element.num_children == 0, "column ", place.path, " has a type and children");
    HONE_CHECK(*element.type != PhysicalType::fixed_len_byte_array || element.type_length > 0, "column ", place.path,
               " has values of ", element.type_length, " bytes");
    Shape out;
    out.name = element.name;
    out.first_leaf = out_.leaves.size();
    out.num_leaves = 1;
    out_.leaves.push_back({.path = place.path,
                           .type = *element.type,
                           .type_length = element.type_length,
                           .annotation = element.annotation,
                           .max_definition = place.definition,
                           .max_repetition = place.repetition});
    return out;
  }

  Shape members(const SchemaElement& element, const Place& place) {
    Shape out;
    out.kind = Shape::Kind::object;
    out.name = element.name;
    out.first_leaf = out_.leaves.size();
    std::set<std::string> names;
    for (int32_t i = 0; i < element.num_children; ++i) {
      out.children.push_back(this->element(place));
      HONE_CHECK(names.insert(out.children.back().name).second, "the schema names ", place.path, " ",
                 out.children.back().name, " twice");
    }
    out.num_leaves = out_.leaves.size() - out.first_leaf;
    HONE_CHECK(out.num_leaves > 0, "the group '", place.path, "' of the schema has no columns");
    return out;
  }

  // A group that is marked as a list or a map: its one child is repeated.
  Shape annotated(const SchemaElement& element, const Place& place) {
    const SchemaElement& repeated = take();
    const Place item_place = inside(place, repeated);
    const bool is_map = element.annotation.meaning == Meaning::map;
    // An older list has the element itself as the repeated group.
    const bool is_wrapper = !repeated.type && repeated.num_children == 1 &&
                            (is_map || (repeated.name != "array" && repeated.name != element.name + "_tuple"));
    Shape item = is_wrapper ? this->element(item_place) : content(repeated, item_place);
    if (is_map && !is_wrapper) item.is_entry = item.kind == Shape::Kind::object && item.children.size() == 2;
    return list_of(element.name, item_place, std::move(item));
  }

  const std::vector<SchemaElement>& elements_;
  size_t next_ = 0;
  Schema out_;
};

}  // namespace

Schema make_schema(const std::vector<SchemaElement>& elements) { return SchemaBuilder(elements).build(); }

}  // namespace hone::parquet
