#include "core/config/choice.h"

#include <gtest/gtest.h>

#include "core/config/config.h"

namespace hone {
namespace {

struct Shape {
  virtual ~Shape() = default;
  virtual void fields(Fields&) {}
  virtual void prepare() {}
  virtual double area() const = 0;
  using Factory = std::unique_ptr<Shape> (*)();
  static Registry<Factory>& registry() {
    static Registry<Factory> shapes("shape");
    return shapes;
  }
};

struct Square : Shape {
  double side = 1;
  void fields(Fields& f) override { f("side", side, "length of a side"); }
  double area() const override { return side * side; }
};
struct Ring : Shape {
  double outer = 2, inner = 1;
  void fields(Fields& f) override { f("outer", outer, "outer radius"), f("inner", inner, "inner radius"); }
  void prepare() override { HONE_CHECK(inner < outer, "inner = ", inner, " must be below outer = ", outer); }
  double area() const override { return outer * outer - inner * inner; }
};
[[maybe_unused]] const bool added = Shape::registry().add("square", [] {
  return std::unique_ptr<Shape>(new Square);
}) && Shape::registry().add("ring", [] { return std::unique_ptr<Shape>(new Ring); });

struct Drawing {
  Choice<Shape> shape{"square"};
  std::string color = "red";
  void fields(Fields& f) {
    shape.fields(f, "kind", "which shape");
    f("color", color, "of the line");
  }
};

Drawing read(std::string_view text) { return Config::from_text(text, "d.toml").as<Drawing>(); }
std::string write(Drawing& drawing) {
  return to_toml([&](Fields& f) { drawing.fields(f); });
}
std::string error_of(std::string_view text) {
  try {
    read(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Choice, AKindsKeysStandBesideItInAnyOrder) {
  EXPECT_EQ(read("kind = 'ring'\nouter = 3\ncolor = 'blue'").shape->area(), 8);
  EXPECT_EQ(read("color = 'blue'\nouter = 3\nkind = 'ring'").shape->area(), 8);
  EXPECT_EQ(read("side = 3").shape->area(), 9);  // the default kind
}

TEST(Choice, ErrorsNameThePlace) {
  EXPECT_EQ(error_of("kind = 'rung'"), "d.toml:1:8: unknown shape 'rung'; did you mean 'ring'?; known: ring, square");
  EXPECT_EQ(error_of("kind = ''"), "d.toml:1:8: 'kind' is missing; known: ring, square");
  EXPECT_EQ(error_of("kind = 'ring'\ninner = 2"), "d.toml:1:8: ring: inner = 2 must be below outer = 2");
  EXPECT_NE(error_of("kind = 'ring'\nside = 2").find("d.toml:2:1: unknown key 'side'"), std::string::npos);
}

TEST(Choice, WritingAndDocumentingChangeNothing) {
  Drawing drawing = read("kind = 'ring'\nouter = 3");
  const std::shared_ptr<const Shape> before = drawing.shape.shared();
  const std::string text = write(drawing);
  EXPECT_EQ(text, "kind = \"ring\"\nouter = 3.0\ninner = 1.0\ncolor = \"red\"\n");
  EXPECT_NE(document_fields("d", [&](Fields& f) { drawing.fields(f); }).find("outer radius"), std::string::npos);
  EXPECT_EQ(drawing.shape.shared(), before);
  EXPECT_EQ(write(drawing), text);
  Drawing again = read(text);
  EXPECT_EQ(write(again), text);
}

TEST(Choice, ReadingACopyLeavesTheOriginalAlone) {
  const Drawing original = read("side = 3");
  Drawing copy = original;
  Config::from_text("side = 5", "d.toml").read([&](Fields& f) { copy.fields(f); });
  EXPECT_EQ(original.shape->area(), 9);
  EXPECT_EQ(copy.shape->area(), 25);
}

TEST(Choice, OnlySettingsThatNoCopySharesAreUpdated) {
  Drawing drawing = read("side = 3");
  drawing.shape.update([](Shape& shape) { dynamic_cast<Square&>(shape).side = 4; });
  EXPECT_EQ(drawing.shape->area(), 16);
  const Drawing copy = drawing;
  EXPECT_THROW(drawing.shape.update([](Shape&) {}), Error);
}

TEST(Choice, AnOptionalOneMayBeEmpty) {
  Choice<Shape> none;
  Config::from_text("kind = ''", "d.toml").read([&](Fields& f) {
    none.fields(
        f, "kind", "", [] {}, true);
  });
  EXPECT_FALSE(none);
}

}  // namespace
}  // namespace hone
