#pragma once
// LineInput: lines that a person types, with editing and history (libedit) if standard input and output are a terminal.
// Otherwise it reads plain lines. One thread.
#include <filesystem>
#include <memory>
#include <string>

namespace hone {

class LineInput {
 public:
  // history_file: lines of earlier sessions; empty = none. A file that cannot be read or written is left out.
  explicit LineInput(std::filesystem::path history_file);
  ~LineInput();
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;

  enum class Event { line, interrupt, end };
  // Writes the prompt and reads a line without its newline. interrupt: Ctrl-C (take_interrupt(),
  // core/base/interrupt.h); what was typed is dropped. end: Ctrl-D, or the end of the input.
  Event read(const std::string& prompt, std::string& line);
  // Adds an entry to the history and its file.
  void remember(const std::string& entry);
  // True if a person types: standard input is a terminal.
  bool is_terminal() const { return is_terminal_; }

 private:
  class Editor;
  Event read_plain(const std::string& prompt, std::string& line);

  bool is_terminal_;
  std::unique_ptr<Editor> editor_;  // null: plain lines
  std::string buffer_;              // of plain lines: bytes after the last newline
};

// $XDG_STATE_HOME/hone/NAME, else ~/.local/state/hone/NAME; empty without a home folder.
std::filesystem::path state_file(const std::string& name);

}  // namespace hone
