// hone chat: a conversation with a model in the terminal.
#include <algorithm>
#include <cstdio>

#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/line_input.h"
#include "cli/model_arguments.h"
#include "core/base/format.h"
#include "core/base/interrupt.h"
#include "core/io/file.h"

namespace hone {
namespace {

constexpr const char* help = R"(/help           this list
/system TEXT    set the system message; without TEXT remove it
/reset          forget all messages but the system message
/regenerate     replace the last reply
/save FILE      write the conversation as JSON: {"messages": [...]}
/load FILE      continue a conversation of /save, or a list of messages
/exit           leave; so does Ctrl-D
A line that ends with \ continues on the next line. A message between """ and """ may have many lines.
Ctrl-C ends a reply, or drops the line.
)";

class ChatCommand : public Command {
 public:
  std::string summary() const override { return "chat with a model in the terminal; /help lists its commands"; }
  std::string example() const override { return "hone chat --model DIR --system 'You are brief.'"; }
  std::vector<std::pair<std::string, std::string>> old_arguments() const override {
    return {{"--format", "--chat-format"}};
  }
  void arguments(Arguments& a) override {
    model_.arguments(a);
    a.option("system", system_, "system message; empty = none");
    a.option("chat-format", format_,
             "chat format: auto (the model's own) | template | a built-in name (hone list chat-templates)");
    model_.chat_arguments(a);
    sampling_arguments(a, sampling_);
  }

  int run() override {
    check_options([&](Fields& f) { sampling_.fields(f); });
    model_.open();
    const Tokenizer& tokenizer = model_.tokenizer();
    Engine engine(model_.context(), model_.model(), &tokenizer, {});
    ChatSession session(engine, tokenizer, ChatFormat::make(format_, tokenizer), sampling_);
    session.set_system(system_);
    count_interrupts();
    LineInput input(state_file("chat_history"));
    if (input.is_terminal()) std::printf("/help lists the commands; Ctrl-D leaves\n");
    for (std::string message;;) {
      const LineInput::Event event = read_message(input, message);
      if (event == LineInput::Event::end) return 0;
      if (event == LineInput::Event::interrupt && message.empty())
        std::printf("To leave, press Ctrl-D or type /exit.\n");
      if (event == LineInput::Event::interrupt || message.empty()) continue;
      try {
        if (!handle(session, message)) return 0;
      } catch (const Error& error) {  // the conversation goes on if a person can mend the message
        if (!input.is_terminal()) throw;
        std::printf("%s\n", printable(error.what()).c_str());
      }
    }
  }

 private:
  // Reads a message of one or more lines. After Ctrl-C `message` is what was typed in earlier lines.
  static LineInput::Event read_message(LineInput& input, std::string& message) {
    constexpr std::string_view quotes = "\"\"\"";
    message.clear();
    std::string line;
    bool quoted = false, continued = false;
    do {
      const LineInput::Event event = input.read(quoted || continued ? "... " : "> ", line);
      if (event == LineInput::Event::end && !message.empty()) break;
      if (event != LineInput::Event::line) return event;
      if (!line.empty()) input.remember(line);
      const bool begins = !quoted && !continued && line.starts_with(quotes);
      if (begins) line.erase(0, quotes.size());
      const bool ends = (quoted || begins) && line.ends_with(quotes);
      if (ends) line.resize(line.size() - quotes.size());
      quoted = (quoted || begins) && !ends;
      continued = !quoted && !ends && line.ends_with('\\');
      if (continued) line.pop_back();
      // The first line of a quoted message is empty if the quotes stand alone.
      if (begins && quoted && line.empty()) continue;
      message += line;
      if (quoted || continued) message += '\n';
    } while (quoted || continued);
    while (message.ends_with('\n')) message.pop_back();
    return LineInput::Event::line;
  }

  // False if the command ends the conversation.
  static bool handle(ChatSession& session, const std::string& message) {
    if (!message.starts_with('/')) {
      session.send(message.starts_with(" /") ? message.substr(1) : message);
      return true;
    }
    const size_t space = message.find_first_of(" \n");
    const std::string name = message.substr(0, space);
    const size_t begin = space == std::string::npos ? space : message.find_first_not_of(' ', space);
    const std::string rest = begin == std::string::npos ? "" : message.substr(begin);
    if (name == "/exit" || name == "/quit") return false;
    command(session, name, rest);
    return true;
  }

  static void command(ChatSession& session, const std::string& name, const std::string& rest) {
    static const std::vector<std::string> known = {"/help", "/system", "/reset", "/regenerate",
                                                   "/save", "/load",   "/exit",  "/quit"};
    if (name == "/help") {
      std::printf("%s", help);
    } else if (name == "/system") {
      session.set_system(rest);
      std::printf("%s\n", rest.empty() ? "There is no system message." : "The system message is set.");
    } else if (name == "/reset") {
      session.reset();
      std::printf("The conversation starts again.\n");
    } else if (name == "/regenerate") {
      if (!session.regenerate()) std::printf("There is no reply to replace.\n");
    } else if (name == "/save") {
      save(session, rest);
    } else if (name == "/load") {
      load(session, rest);
    } else {
      std::printf(
          "unknown command '%s'%s; /help lists the commands. A message that begins with / needs a space before "
          "it.\n",
          name.c_str(), suggestion(name, known).c_str());
    }
  }

  static void save(const ChatSession& session, const std::string& file) {
    HONE_CHECK(!file.empty(), "/save needs a file: /save chat.json");
    const Json all = JsonObject{{"messages", messages_json(session.messages())}};
    write_file_atomic(expand_path(file), all.dump() + "\n");
    std::printf("%zu messages are in %s.\n", session.messages().size(), file.c_str());
  }

  static void load(ChatSession& session, const std::string& file) {
    HONE_CHECK(!file.empty(), "/load needs a file: /load chat.json");
    const std::string path = expand_path(file);
    const Json all = parse_json(read_file(path), path);
    session.set_messages(parse_messages(all.is_array() ? all : all.at("messages", path), path));
    std::printf("%zu messages are loaded.\n", session.messages().size());
  }

  ModelArguments model_;
  SamplingParams sampling_{.max_tokens = 512, .stop = {}, .stop_ids = {}};
  std::string system_, format_ = "auto";
};

[[maybe_unused]] const bool added = commands().add("chat", [] { return std::unique_ptr<Command>(new ChatCommand); });

}  // namespace
}  // namespace hone
