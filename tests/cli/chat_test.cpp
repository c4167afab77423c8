// hone chat in a terminal and with lines from a pipe. The model has random weights: only what is around its replies is
// tested.
#include "core/io/json.h"
#include "tests/cli/command_case.h"
#include "tests/support/terminal.h"

namespace hone::test {
namespace {

class Chat : public CommandCase {
 protected:
  // The small model with room for a conversation.
  std::string long_model() {
    const std::string model = model_folder(), path = model + "/config.json";
    Json config = parse_json(read_file(path), path);
    config.set("max_position_embeddings", 512);
    write_file_atomic(path, config.dump());
    return model;
  }
  std::vector<std::string> arguments(const std::vector<std::string>& more = {}) {
    std::vector<std::string> out = {"chat", "--model", long_model(), "--chat-format", "plain"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  std::vector<std::string> environment(const std::string& terminal = "xterm") const {
    return {"TERM=" + terminal, "XDG_STATE_HOME=" + (folder.path() / "state").string(),
            "HOME=" + folder.path().string()};
  }
  std::string saved(const std::string& name) const { return read_file(folder.path() / name); }
  std::string in_folder(const std::string& name) const { return (folder.path() / name).string(); }
  static std::vector<std::string> roles_and_users(const Json& all) {
    std::vector<std::string> out;
    for (const Json& message : all.at("messages").as_array()) {
      const std::string& role = message.at("role").as_string();
      out.push_back(role == "assistant" ? role : role + ": " + message.at("content").as_string());
    }
    return out;
  }
};

using Roles = std::vector<std::string>;

TEST_F(Chat, ATerminalHasEditingHistoryAndCommands) {
  Terminal terminal(arguments({"--max-tokens", "4", "--system", "be brief"}), environment());
  ASSERT_TRUE(terminal.shows("> ")) << terminal.screen();
  terminal.type("the dgo\x7f\x7fog\n");  // two backspaces
  ASSERT_TRUE(terminal.shows("\n> ")) << terminal.screen();
  terminal.type("/rest\n");
  EXPECT_TRUE(terminal.shows("unknown command '/rest'; did you mean '/reset'?")) << terminal.screen();
  terminal.type("/save " + in_folder("a.json") + "\n");
  EXPECT_TRUE(terminal.shows("3 messages are in")) << terminal.screen();
  terminal.type("/help\n");
  EXPECT_TRUE(terminal.shows("/regenerate")) << terminal.screen();
  EXPECT_TRUE(terminal.shows("\n> ")) << terminal.screen();
  terminal.type("\x1b[A\x1b[A\n");  // two lines up in the history: /save
  EXPECT_TRUE(terminal.shows("3 messages are in")) << terminal.screen();
  EXPECT_EQ(terminal.leave(), 0) << terminal.screen();
  EXPECT_EQ(roles_and_users(parse_json(saved("a.json"), "a.json")),
            (Roles{"system: be brief", "user: the dog", "assistant"}));

  // The next session has the history of the first.
  Terminal next(arguments({"--max-tokens", "4"}), environment());
  ASSERT_TRUE(next.shows("> ")) << next.screen();
  next.type("\x1b[A\n");
  EXPECT_TRUE(next.shows("messages are in")) << next.screen();
  next.type("/exit\n");
  EXPECT_EQ(next.leave(), 0);
  const std::filesystem::perms mode = std::filesystem::status(folder.path() / "state/hone/chat_history").permissions();
  EXPECT_EQ(mode & (std::filesystem::perms::group_all | std::filesystem::perms::others_all),
            std::filesystem::perms::none);
}

TEST_F(Chat, CtrlCEndsTheReplyAndNotTheProgram) {
  Terminal terminal(arguments({"--max-tokens", "400", "--min-tokens", "400"}), environment());
  ASSERT_TRUE(terminal.shows("> ")) << terminal.screen();
  terminal.type("\x03");
  EXPECT_TRUE(terminal.shows("To leave, press Ctrl-D or type /exit.")) << terminal.screen();
  terminal.type("dropped\x03");
  EXPECT_TRUE(terminal.shows("> ")) << terminal.screen();
  terminal.type("the cat\n\x03");  // in the reply, or after it: the program goes on in both cases
  EXPECT_TRUE(terminal.shows("> ")) << terminal.screen();
  EXPECT_TRUE(terminal.type_until("\n/save " + in_folder("b.json") + "\n", "messages are in")) << terminal.screen();
  EXPECT_EQ(terminal.leave(), 0) << terminal.screen();
  EXPECT_EQ(saved("b.json").find("dropped"), std::string::npos);
}

TEST_F(Chat, ATerminalThatCannotDrawHasPlainLines) {
  Terminal terminal(arguments({"--max-tokens", "4"}), environment("dumb"));
  ASSERT_TRUE(terminal.shows("> ")) << terminal.screen();
  terminal.type("\x03");
  EXPECT_TRUE(terminal.shows("To leave")) << terminal.screen();
  terminal.type("/system\n");
  EXPECT_TRUE(terminal.shows("There is no system message.")) << terminal.screen();
  EXPECT_EQ(terminal.leave(), 0) << terminal.screen();
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "state/hone/chat_history"));
}

TEST_F(Chat, LinesOfAPipeAreMessagesAndCommands) {
  const std::string input = "the cat\\\nsat\n\n/regenerate\n\"\"\"\non\nthe mat\n\"\"\"\n/save " + in_folder("c.json") +
                            "\n/reset\n/system be kind\n\"\"\"one line\"\"\"\n/save " + in_folder("d.json") +
                            "\n/load " + in_folder("c.json") + "\n so\n/save " + in_folder("e.json");
  const Finished done = run_hone(arguments({"--max-tokens", "4"}), environment(), input);
  ASSERT_EQ(done.code, 0) << done.err << done.out;
  EXPECT_EQ(roles_and_users(parse_json(saved("c.json"), "c.json")),
            (Roles{"user: the cat\nsat", "assistant", "user: on\nthe mat", "assistant"}));
  EXPECT_EQ(roles_and_users(parse_json(saved("d.json"), "d.json")),
            (Roles{"system: be kind", "user: one line", "assistant"}));
  EXPECT_EQ(roles_and_users(parse_json(saved("e.json"), "e.json")),
            (Roles{"user: the cat\nsat", "assistant", "user: on\nthe mat", "assistant", "user:  so", "assistant"}));
}

TEST_F(Chat, ABrokenCommandOfAPipeFails) {
  const Finished done =
      run_hone(arguments({"--max-tokens", "4"}), environment(), "/load " + in_folder("none.json") + "\n");
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.err.find("none.json: cannot open"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace hone::test
