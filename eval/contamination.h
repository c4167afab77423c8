#pragma once
// Contamination: finds the rows of a task that share word n-grams with a training set. Words are separated by white
// space, in lower case (ASCII) and without punctuation (Brown et al. 2020, appendix C, with n = 13). A row's share is
// the fraction of its words that lie in shared n-grams (Touvron et al. 2023, appendix A.6). The training set is read
// once as a stream: memory grows with the task only.
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/function_ref.h"
#include "core/io/json.h"

namespace hone {

// Compares n-grams by 64-bit hashes. One thread.
class Contamination {
 public:
  explicit Contamination(int64_t n);

  // Adds a row of the task. Each string of the row, of any member, is a text of its own.
  void add_row(const Json& row, const std::string& where);

  // Begins a training document, which `where` names. add_text() then adds its text in pieces that end between words.
  void begin_document(std::string where);
  void add_text(std::string_view text);

  struct Row {
    std::string where, found_in;             // found_in: the first document that shares an n-gram; "" = none
    int64_t num_words = 0, num_covered = 0;  // words of strings with n or more words; those of them in shared n-grams
    Json to_json() const;                    // `share` is num_covered / num_words
  };
  const std::vector<Row>& rows() const { return rows_; }
  // rows; checked: rows with a string of n words; flagged: rows that share an n-gram; flagged_share: flagged / checked;
  // word_share: covered words / words of checked rows; mostly_covered: rows with at least 80% covered words; n;
  // documents and words of the training set.
  Json summary() const;

 private:
  struct Text {
    size_t row = 0;
    std::vector<bool> covered;  // words
  };
  struct NgramPosition {
    size_t text = 0, word = 0;  // the first word of an n-gram
  };
  // The rolling hash of the last n words; push() returns true once there are n.
  class Window {
   public:
    explicit Window(size_t n);
    bool push(uint64_t word);
    uint64_t hash() const { return hash_; }
    void clear() {
      count_ = 0;
      hash_ = 0;
    }

   private:
    std::vector<uint64_t> words_;  // ring buffer
    size_t count_ = 0;
    uint64_t hash_ = 0, oldest_ = 1;  // oldest_: the factor of the oldest word
  };
  void mark_covered(const std::vector<NgramPosition>& positions);

  size_t n_;
  std::vector<Row> rows_;
  std::vector<Text> texts_;
  std::unordered_map<uint64_t, std::vector<NgramPosition>> index_;  // n-grams that no document has contained yet
  Window window_;
  std::string document_;
  int64_t num_documents_ = 0, num_words_ = 0;
};

// Calls string(text) for each string in a value, at any depth.
void each_string(const Json& value, FunctionRef<void(const std::string&)> string);
// Calls word(hash) for each word of the text.
void each_word(std::string_view text, FunctionRef<void(uint64_t)> word);

}  // namespace hone
