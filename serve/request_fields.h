#pragma once
// RequestFields: reads the members of a request's JSON object one by one. Errors name the member.
#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json.h"

namespace hone {

// A client's text as an error repeats it: its first 100 bytes.
std::string short_echo(const std::string& text);

class RequestFields {
 public:
  // Keeps a reference to body. Throws HttpError unless it is an object.
  explicit RequestFields(const Json& body);
  // Returns the member, or nullptr if it is missing or null.
  const Json* find(const std::string& name);
  void read(const std::string& name, bool& value);
  void read(const std::string& name, int64_t& value);
  void read(const std::string& name, double& value);
  // Accepts members that have no effect here.
  void ignore(const std::vector<std::string>& names);
  // Rejects a member that is not supported, unless its value is `harmless`.
  void reject(const std::string& name, const Json& harmless, const std::string& reason);
  // Throws HttpError if the object has a member that none of the calls named.
  void finish() const;

 private:
  const Json& body_;
  std::vector<std::string> known_;
};

}  // namespace hone
