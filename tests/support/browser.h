#pragma once
// A headless Chromium, controlled through its DevTools protocol (https://chromedevtools.github.io/devtools-protocol/)
// over two pipes.
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tests/support/support.h"

namespace hone::test {

class Browser {
 public:
  // Returns the path of Chromium if this machine has it.
  static std::optional<std::string> program();
  // Opens the address. These functions throw an exception if the browser does not answer in time.
  Browser(const std::string& program, const std::string& url);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  Json evaluate(const std::string& javascript);
  // User actions on the first element that a CSS selector finds.
  void point_at(const std::string& selector);
  void click(const std::string& selector);
  void type(const std::string& selector, const std::string& text);  // replaces the content
  // Error messages of scripts, of the content security policy and of the network.
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  Json call(const std::string& method, const Json& parameters);
  void mouse(const std::string& type, const std::string& selector);
  std::string receive();

  TemporaryFolder profile_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string received_, session_;
  int64_t last_call_ = 0;
  std::vector<std::string> complaints_;
};

}  // namespace hone::test
