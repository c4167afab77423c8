// hone logprobs with a server: the fields that distillation reads.
#include <gtest/gtest.h>

#include <fstream>

#include "core/io/jsonl.h"
#include "tests/rollout/byte_model.h"
#include "tests/support/http_server.h"
#include "tests/support/process.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

// A server with prompt_logprobs: each token has -0.5, and token 65 is as likely.
std::string respond(const ReceivedRequest& request) {
  JsonArray entries{Json()};
  const Json body = parse_json(request.body, "request");
  const JsonArray& ids = body.at("prompt").as_array();
  for (size_t t = 1; t < ids.size(); ++t) {
    Json entry = JsonObject{{std::to_string(ids[t].as_int()), JsonObject{{"logprob", -0.5}}}};
    entry.set("65", JsonObject{{"logprob", -1.5}});
    entries.push_back(entry);
  }
  return http_response(
      Json(JsonObject{{"choices", JsonArray{JsonObject{{"text", ""}, {"prompt_logprobs", entries}}}}}).dump());
}

TEST(LogprobsOfAServer, AreTheFieldsOfDistillation) {
  const TemporaryFolder folder;
  TinyModel tiny;
  tiny.save(folder.path() / "model");
  const std::string rows = (folder.path() / "rows.jsonl").string(), out = (folder.path() / "out.jsonl").string();
  std::ofstream(rows) << R"({"prompt": "1+1=", "completion": "2", "answer": "2"})" << '\n';
  const HttpServer server(respond);
  const std::vector<std::string> arguments = {"logprobs",
                                              "--base-url",
                                              server.url("127.0.0.1", "/v1"),
                                              "--model",
                                              "teacher",
                                              "--tokenizer",
                                              (folder.path() / "model").string(),
                                              "--in",
                                              rows,
                                              "--out",
                                              out};
  std::vector<std::string> with_top = arguments;
  with_top.insert(with_top.end(), {"--top-logprobs", "2"});
  const Finished done = run_hone(with_top);
  ASSERT_EQ(done.code, 0) << done.err;
  std::vector<Json> written;
  read_jsonl(out, [&](const Json& row, int64_t) { written.push_back(row); });
  ASSERT_EQ(written.size(), 1u);
  const Json& row = written[0];
  const size_t tokens = row.at("ids").as_array().size();
  EXPECT_GE(tokens, 5u);
  EXPECT_EQ(row.at("answer").as_string(), "2");
  EXPECT_TRUE(row.at("top_ids").as_array()[0].is_null());
  ASSERT_EQ(row.at("top_ids").as_array().size(), tokens);
  EXPECT_EQ(row.at("top_ids").as_array()[1], Json::array(std::vector<int>{'+', 65}));
  EXPECT_EQ(row.at("top_logp").as_array()[1], Json::array(std::vector<float>{-0.5f, -1.5f}));
  EXPECT_EQ(row.at("logp").as_array()[1].as_double(), -0.5);

  std::vector<std::string> wrong = arguments;
  wrong.insert(wrong.end(), {"--top-logprobs", "65"});
  EXPECT_NE(run_hone(wrong).err.find("--top-logprobs is 65; it must be in [0, 64]"), std::string::npos);
  wrong = arguments;
  wrong.insert(wrong.end(), {"--temperature", "0.5"});
  EXPECT_NE(run_hone(wrong).err.find("need --temperature 1"), std::string::npos);
  const Finished none = run_hone({"logprobs", "--base-url", "http://127.0.0.1:1/v1", "--model", "m", "--in", rows});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("--base-url and --tokenizer are given together"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace hone::test
