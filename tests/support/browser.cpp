#include "tests/support/browser.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace hone::test {

std::optional<std::string> Browser::program() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"})
    if (::access(path, X_OK) == 0) return path;
  return std::nullopt;
}

Browser::Browser(const std::string& program, const std::string& url) {
  int commands[2], answers[2];
  if (::pipe2(commands, O_CLOEXEC) != 0 || ::pipe2(answers, O_CLOEXEC) != 0)
    throw std::runtime_error("cannot make a pipe");
  std::vector<std::string> words{program,
                                 "--headless",
                                 "--no-sandbox",
                                 "--disable-gpu",
                                 "--disable-dev-shm-usage",
                                 "--no-first-run",
                                 "--remote-debugging-pipe",
                                 "--user-data-dir=" + profile_.path().string()};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("cannot fork");
  if (pid_ == 0) {
    ::setpgid(0, 0);
    const int silence = ::open("/dev/null", O_RDWR), in = ::fcntl(commands[0], F_DUPFD, 10),
              out = ::fcntl(answers[1], F_DUPFD, 10);
    for (const int fd : {0, 1, 2}) ::dup2(silence, fd);
    ::dup2(in, 3);  // Chromium reads descriptor 3 and writes 4
    ::dup2(out, 4);
    ::close(in), ::close(out);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(commands[0]);
  ::close(answers[1]);
  to_ = commands[1];
  from_ = answers[0];
  const Json target = call("Target.createTarget", JsonObject{{"url", "about:blank"}});
  session_ = call("Target.attachToTarget", JsonObject{{"targetId", target.at("targetId")}, {"flatten", true}})
                 .at("sessionId")
                 .as_string();
  for (const char* domain : {"Log.enable", "Runtime.enable", "Page.enable"}) call(domain, JsonObject{});
  call("Page.navigate", JsonObject{{"url", url}});
  if (!soon(
          [&] { return evaluate("document.readyState === 'complete' && location.href !== 'about:blank'").as_bool(); }))
    throw std::runtime_error("the browser does not open " + url);
}

Browser::~Browser() {
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::close(to_), ::close(from_);
}

// Returns the next message. Messages end with a zero byte.
std::string Browser::receive() {
  for (;;) {
    if (const size_t end = received_.find('\0'); end != std::string::npos) {
      std::string out = received_.substr(0, end);
      received_.erase(0, end + 1);
      return out;
    }
    pollfd waiting{from_, POLLIN, 0};
    char piece[65536];
    const ssize_t count = ::poll(&waiting, 1, 30000) == 1 ? ::read(from_, piece, sizeof piece) : 0;
    if (count <= 0) throw std::runtime_error("the browser does not answer");
    received_.append(piece, static_cast<size_t>(count));
  }
}

Json Browser::call(const std::string& method, const Json& parameters) {
  const int64_t id = ++last_call_;
  Json message = JsonObject{{"id", id}, {"method", method}, {"params", parameters}};
  if (!session_.empty()) message.set("sessionId", session_);
  const std::string text = message.dump();
  if (::write(to_, text.c_str(), text.size() + 1) != static_cast<ssize_t>(text.size() + 1))
    throw std::runtime_error("the browser has gone");
  for (;;) {
    const Json answer = parse_json(receive(), "the browser");
    if (const Json* event = answer.find("method")) {
      if (event->as_string() == "Log.entryAdded" || event->as_string() == "Runtime.exceptionThrown")
        complaints_.push_back(answer.dump());
      continue;
    }
    if (answer.at("id").as_int() != id) continue;
    if (const Json* error = answer.find("error")) throw std::runtime_error(method + ": " + error->dump());
    return answer.at("result");
  }
}

Json Browser::evaluate(const std::string& javascript) {
  const Json answer =
      call("Runtime.evaluate", JsonObject{{"expression", javascript}, {"returnByValue", true}, {"awaitPromise", true}});
  if (const Json* problem = answer.find("exceptionDetails"))
    throw std::runtime_error(javascript + ": " + problem->dump());
  const Json* value = answer.at("result").find("value");
  return value ? *value : Json();
}

void Browser::mouse(const std::string& type, const std::string& selector) {
  const Json at = evaluate("(() => { const found = document.querySelector(" + Json(selector).dump() +
                           "); found.scrollIntoView({block: 'center'}); const box = found.getClientRects()[0]; "
                           "return {x: box.x + box.width / 2, y: box.y + box.height / 2}; })()");
  call("Input.dispatchMouseEvent", JsonObject{{"type", type},
                                              {"x", at.at("x")},
                                              {"y", at.at("y")},
                                              {"button", type == "mouseMoved" ? "none" : "left"},
                                              {"clickCount", 1}});
}

void Browser::point_at(const std::string& selector) { mouse("mouseMoved", selector); }

void Browser::click(const std::string& selector) {
  for (const char* type : {"mouseMoved", "mousePressed", "mouseReleased"}) mouse(type, selector);
}

void Browser::type(const std::string& selector, const std::string& text) {
  click(selector);
  evaluate("document.activeElement.select()");
  call("Input.insertText", JsonObject{{"text", text}});
}

}  // namespace hone::test
