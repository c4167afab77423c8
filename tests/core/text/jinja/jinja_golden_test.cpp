#include <gtest/gtest.h>

#include <fstream>

#include "core/text/jinja/jinja.h"
#include "tests/support/support.h"

namespace hone {
namespace {

constexpr int64_t kDay = 1736899200;  // 2025-01-15

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

// Thirteen published templates over eight conversations, compared with Hugging Face transformers.
TEST(JinjaGolden, PublishedTemplatesRenderAsTransformersDoes) {
  HONE_SHARED_OR_SKIP(folder, "data/templates");
  std::ifstream cases(folder / "rendered_cases.jsonl");
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const Json row = parse_json(line, "rendered_cases.jsonl");
    const std::string name = row.at("template").as_string();
    SCOPED_TRACE(name + " " + row.at("case").as_string());
    const JinjaTemplate chat(read_text(folder / (name + ".jinja")));
    Json variables(JsonObject{});
    for (const char* key : {"messages", "add_generation_prompt", "bos_token", "eos_token"})
      variables.set(key, row.at(key));
    variables.set("tools", nullptr);
    variables.set("documents", nullptr);
    if (row.at("error").is_null()) {
      EXPECT_EQ(chat.render(variables, kDay).text, row.at("rendered").as_string());
      continue;
    }
    try {
      chat.render(variables, kDay);
      ADD_FAILURE() << "should refuse: " << row.at("error").as_string();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(row.at("error").as_string()), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(count, 104);
}

}  // namespace hone
