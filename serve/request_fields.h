#pragma once
// RequestFields: takes the members of a request's JSON object one by one, and names what is wrong.
#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json.h"

namespace hone {

// A client's text as an error repeats it: its first 100 bytes.
std::string short_echo(const std::string& text);

class RequestFields {
 public:
  // A HttpError unless body is an object. It is kept by reference.
  explicit RequestFields(const Json& body);
  // The member, or nullptr where there is none or null. Errors of a wrong kind name it.
  const Json* find(const std::string& name);
  void take(const std::string& name, bool& value);
  void take(const std::string& name, int64_t& value);
  void take(const std::string& name, double& value);
  // Names that are known and change nothing.
  void ignore(const std::vector<std::string>& names);
  // Names that are known and cannot be had, unless they say what happens anyway.
  void refuse(const std::string& name, const Json& harmless, const std::string& reason);
  // A HttpError if the object has a member that was not asked for.
  void finish() const;

 private:
  const Json& body_;
  std::vector<std::string> known_;
};

}  // namespace hone
