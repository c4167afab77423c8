#pragma once
// A headless Chromium, driven by its DevTools protocol (https://chromedevtools.github.io/devtools-protocol/) over two
// pipes.
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tests/support/support.h"

namespace hone::test {

class Browser {
 public:
  // The program, if this machine has it.
  static std::optional<std::string> program();
  // Opens the address. A browser that does not answer in time is an exception, here and below.
  Browser(const std::string& program, const std::string& url);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  Json evaluate(const std::string& javascript);
  // What a person does, to the element that a CSS selector finds first.
  void point_at(const std::string& selector);
  void click(const std::string& selector);
  void type(const std::string& selector, const std::string& text);  // in place of what stands there
  // What scripts, the policy or the network complained about.
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
