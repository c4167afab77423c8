#pragma once
// Makes a certificate and its key for a test server with the openssl program.
#include <cstdlib>
#include <filesystem>
#include <string>

namespace hone::test {

struct Certificate {
  std::string certificate, key;  // PEM files; "" without the program
};

// alt_name: "DNS:localhost", "IP:127.0.0.1".
inline Certificate make_certificate(const std::filesystem::path& folder, const std::string& alt_name) {
  const Certificate out{(folder / "cert.pem").string(), (folder / "key.pem").string()};
  const std::string command =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=test -addext "
      "subjectAltName=" +
      alt_name + " -keyout " + out.key + " -out " + out.certificate + " 2>/dev/null";
  return std::system(command.c_str()) == 0 ? out : Certificate{};
}

}  // namespace hone::test
