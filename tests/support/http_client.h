#pragma once
// A client for tests of HTTP servers, on a bare socket: it may also send what no client should, read slowly, or leave.
#include <map>
#include <string>

namespace hone::test {

struct HttpAnswer {
  int status = 0;                              // 0: the connection ended before a whole answer had come
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without the chunks' frames
};

class HttpClient {
 public:
  // receive_buffer: bytes of the socket's, 0 = the system's choice.
  explicit HttpClient(int64_t port, int receive_buffer = 0, const std::string& address = "127.0.0.1");
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  // False where the server has closed.
  bool send(const std::string& bytes) const;
  // What has come, at most so many bytes; "" at the end, or after so many seconds without any.
  std::string read(size_t most = 65536, double seconds = 20) const;
  // Whether the server ends the connection, and has nothing more to say, within so many seconds.
  bool ends(double seconds = 20) const;
  HttpAnswer answer();
  // Reads until the text has come; false if the connection ends before.
  bool read_until(const std::string& text);
  void close();
  void close_half();  // sends no more, and still reads
  void reset();       // closes without a farewell: whatever waits is lost
  HttpAnswer post(const std::string& path, const std::string& body, const std::string& more_headers = "");
  HttpAnswer get(const std::string& path, const std::string& more_headers = "");

 private:
  int socket_ = -1;
  std::string received_;
};

std::string post_request(const std::string& path, const std::string& body, const std::string& more_headers = "");

}  // namespace hone::test
