#pragma once
// A client for tests of HTTP servers on a raw socket. It can also send invalid requests, read slowly, or disconnect.
#include <map>
#include <string>

namespace hone::test {

struct HttpAnswer {
  int status = 0;                              // 0: the connection ended before the response was complete
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without the framing of chunks
};

class HttpClient {
 public:
  // receive_buffer: bytes of the socket's buffer; 0 = the system's default.
  explicit HttpClient(int64_t port, int receive_buffer = 0, const std::string& address = "127.0.0.1");
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  // Returns false if the server has closed the connection.
  bool send(const std::string& bytes) const;
  // Returns at most `most` received bytes; "" at the end, or after `seconds` without any.
  std::string read(size_t most = 65536, double seconds = 20) const;
  // Returns true if the server closes the connection within `seconds` without sending more.
  bool ends(double seconds = 20) const;
  HttpAnswer answer();
  // Reads until the text arrives. Returns false if the connection ends first.
  bool read_until(const std::string& text);
  void close();
  void close_half();  // closes the sending side only
  void reset();       // resets the connection: unsent data is lost
  HttpAnswer post(const std::string& path, const std::string& body, const std::string& more_headers = "");
  HttpAnswer get(const std::string& path, const std::string& more_headers = "");

 private:
  int socket_ = -1;
  std::string received_;
};

std::string post_request(const std::string& path, const std::string& body, const std::string& more_headers = "");

}  // namespace hone::test
