#include "cli/line_input.h"

#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#include "core/base/interrupt.h"

namespace hone {
namespace {

// Waits for standard input. False if Ctrl-C came before a byte. SIGINT is blocked except while waiting, so that none is
// missed between the test and the wait.
bool wait_for_input() {
  sigset_t interrupts, before;
  ::sigemptyset(&interrupts);
  ::sigaddset(&interrupts, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &interrupts, &before);
  bool interrupted = take_interrupt();
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (!interrupted && ::ppoll(&input, 1, nullptr, &before) < 0 && errno == EINTR) interrupted = take_interrupt();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return !interrupted;
}

// True if libedit's line is empty.
bool is_empty(EditLine* editor) {
  const LineInfoW* line = ::el_wline(editor);
  return line->lastchar == line->buffer;
}

// Reads one character of the terminal for libedit: 1, 0 at the end, -1 after Ctrl-C. Ctrl-D ends the input here:
// libedit inserts it if it was typed while the terminal changed modes.
int read_character(EditLine* editor, wchar_t* out) {
  std::mbstate_t state{};
  for (;;) {
    if (!wait_for_input()) {
      errno = EINTR;
      return -1;
    }
    char byte = 0;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return static_cast<int>(count);
    if (byte == '\x04' && is_empty(editor)) return 0;
    const size_t length = std::mbrtowc(out, &byte, 1, &state);
    if (length == static_cast<size_t>(-2)) continue;  // more bytes follow
    if (length != static_cast<size_t>(-1)) return 1;
    state = {};  // no UTF-8: the byte is dropped
  }
}

// True if libedit can draw on the terminal.
bool can_edit() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO) && terminal && *terminal &&
         std::strcmp(terminal, "dumb") != 0;
}

}  // namespace

class LineInput::Editor {
 public:
  explicit Editor(std::filesystem::path history_file) : history_file_(std::move(history_file)) {
    std::setlocale(LC_CTYPE, "C.UTF-8");  // libedit converts to wide characters
    history_ = ::history_init();
    editor_ = ::el_init("hone", stdin, stdout, stderr);
    HistEvent event;
    ::history(history_, &event, H_SETSIZE, 1000);
    ::history(history_, &event, H_SETUNIQUE, 1);
    if (!history_file_.empty()) ::history(history_, &event, H_LOAD, history_file_.c_str());
    ::el_set(editor_, EL_CLIENTDATA, this);
    ::el_set(editor_, EL_PROMPT, &Editor::prompt_of);
    ::el_set(editor_, EL_EDITOR, "emacs");
    ::el_set(editor_, EL_SIGNAL, 0);
    ::el_set(editor_, EL_HIST, &::history, history_);
    ::el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    ::el_wset(editor_, EL_GETCFN, &read_character);
    ::el_source(editor_, nullptr);  // the user's .editrc
  }
  ~Editor() {
    ::el_end(editor_);
    ::history_end(history_);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  Event read(const std::string& prompt, std::string& line) {
    prompt_ = prompt;
    ::el_resize(editor_);
    int count = 0;
    const char* text = ::el_gets(editor_, &count);
    if (count < 0 || !text) {
      std::printf("\n");
      return count < 0 && errno == EINTR ? Event::interrupt : Event::end;
    }
    line.assign(text, static_cast<size_t>(count));
    while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
    return Event::line;
  }
  void remember(const std::string& entry) {
    HistEvent event;
    ::history(history_, &event, H_ENTER, entry.c_str());
    if (!history_file_.empty()) ::history(history_, &event, H_SAVE, history_file_.c_str());
  }

 private:
  static char* prompt_of(EditLine* editor) {
    Editor* self = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &self);
    return self->prompt_.data();
  }
  std::filesystem::path history_file_;
  std::string prompt_;
  History* history_ = nullptr;
  EditLine* editor_ = nullptr;
};

LineInput::LineInput(std::filesystem::path history_file) : is_terminal_(::isatty(STDIN_FILENO)) {
  if (!can_edit()) return;
  std::error_code ignored;  // without the folder there is no history
  std::filesystem::create_directories(history_file.parent_path(), ignored);
  editor_ = std::make_unique<Editor>(std::move(history_file));
}

LineInput::~LineInput() = default;

LineInput::Event LineInput::read(const std::string& prompt, std::string& line) {
  return editor_ ? editor_->read(prompt, line) : read_plain(prompt, line);
}

LineInput::Event LineInput::read_plain(const std::string& prompt, std::string& line) {
  std::fputs(prompt.c_str(), stdout);
  std::fflush(stdout);
  size_t end = buffer_.find('\n');
  while (end == std::string::npos) {
    if (!wait_for_input()) {
      buffer_.clear();
      std::printf("\n");
      return Event::interrupt;
    }
    std::array<char, 4096> piece;
    const ssize_t count = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    end = std::string_view(piece.data(), static_cast<size_t>(count)).find('\n');
    if (end != std::string::npos) end += buffer_.size();
    buffer_.append(piece.data(), static_cast<size_t>(count));
  }
  if (end == std::string::npos && buffer_.empty()) {
    std::printf("\n");
    return Event::end;
  }
  line = buffer_.substr(0, end);
  buffer_.erase(0, end == std::string::npos ? end : end + 1);
  if (line.ends_with('\r')) line.pop_back();
  return Event::line;
}

void LineInput::remember(const std::string& entry) {
  if (editor_) editor_->remember(entry);
}

std::filesystem::path state_file(const std::string& name) {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state && *state) return std::filesystem::path(state) / "hone" / name;
  const char* home = std::getenv("HOME");
  return home && *home ? std::filesystem::path(home) / ".local/state/hone" / name : std::filesystem::path();
}

}  // namespace hone
