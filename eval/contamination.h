#pragma once
// Contamination: which of a task's rows have word n-grams that a training set has too. Words are what white space
// parts, in lower case (ASCII) and without punctuation (Brown et al. 2020, appendix C, with n = 13); a row's share is
// that of its words that lie in shared n-grams (Touvron et al. 2023, appendix A.6). Memory grows with the task, not
// with the training set, which is read once, as a stream.
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/function_ref.h"
#include "core/io/json.h"

namespace hone {

// n-grams are told apart by 64-bit hashes. One thread.
class Contamination {
 public:
  explicit Contamination(int64_t n);

  // A row of the task: each string in it, whichever member it is of, by itself.
  void add_row(const Json& row, const std::string& where);

  // A training document begins; `where` names it. Its text follows piece by piece, cut between words.
  void begin_document(std::string where);
  void add_text(std::string_view text);

  struct Row {
    std::string where, found_in;             // the first document that shares an n-gram, "" = none
    int64_t num_words = 0, num_covered = 0;  // words in strings of n words at least, and those in shared n-grams
    Json to_json() const;                    // with `share`, num_covered / num_words
  };
  const std::vector<Row>& rows() const { return rows_; }
  // rows, checked (those with a string of n words), flagged, flagged_share (of those checked), word_share (of all their
  // words), mostly_covered (rows with 80% or more of their words), n, documents, words (of the training set).
  Json summary() const;

 private:
  struct Text {
    size_t row = 0;
    std::vector<bool> covered;  // words
  };
  struct Place {
    size_t text = 0, word = 0;  // where in the task an n-gram begins
  };
  // The last n words' hash, once there are n.
  class Window {
   public:
    explicit Window(size_t n);
    bool push(uint64_t word);
    uint64_t hash() const { return hash_; }
    void clear() { count_ = 0, hash_ = 0; }

   private:
    std::vector<uint64_t> words_;  // a ring
    size_t count_ = 0;
    uint64_t hash_ = 0, oldest_ = 1;  // oldest_: what the oldest word is multiplied by
  };
  void found(const std::vector<Place>& places);

  size_t n_;
  std::vector<Row> rows_;
  std::vector<Text> texts_;
  std::unordered_map<uint64_t, std::vector<Place>> index_;  // n-grams that no document has had yet
  Window window_;
  std::string document_;
  int64_t num_documents_ = 0, num_words_ = 0;
};

// Calls string(text) for each string in a value, members of members included.
void each_string(const Json& value, FunctionRef<void(const std::string&)> string);
// Calls word(hash) for each word.
void each_word(std::string_view text, FunctionRef<void(uint64_t)> word);

}  // namespace hone
