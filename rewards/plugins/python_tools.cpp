#include "rewards/plugins/python_tools.h"

#include <unistd.h>

#include <filesystem>

#include "core/base/log.h"
#include "core/io/file.h"
#include "rewards/plugins/line_process.h"
#include "rewards/plugins/python_process.h"
#include "rewards/plugins/text.h"

namespace hone {

Json python_tool_schemas(const PythonTools& tools) {
  const std::string file = expand_path(tools.file);
  ::close(open_file(file));  // the interpreter's message would not name the file
  const std::string shown = std::filesystem::path(file).filename().string();
  LineProcess process({expand_path(tools.python), "-u", "-c", python_program(python_tools())},
                      [&](std::string_view line) { log::info(shown, ": ", plain_text(line)); });
  const Json request = JsonObject{{"file", file}, {"functions", Json::array(tools.functions)}};
  Json answer;
  try {
    answer = parse_json(process.exchange(request.dump(), LineProcess::Clock::now() + std::chrono::seconds(120)),
                        "the answer of Python");
  } catch (const Error& error) {  // adds the file
    fail(file, ": ", error.what());
  }
  if (const Json* error = answer.find("error")) fail(file, ": ", error->as_string("error"));
  return answer.at("schemas", file);
}

}  // namespace hone
