#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "evaluation_index.hpp"
#include "types.hpp"

namespace cuvee {

/// A document that contains an evaluation document: the first of a set that it contains.
struct Contained {
  i64 document;
  u32 evaluation;
  double share;  ///< of the evaluation document's distinct shingles that the document has
};

/// Of an evaluation document, what one document has of it at most.
struct BestShare {
  u32 shared = 0;          ///< distinct shingles
  u32 shingles = 0;        ///< of the evaluation document
  i64 document = -1;       ///< the first that has so many; -1 for none
  bool contained = false;  ///< whether a document of the source that was begun last contains it
};

/// Evaluation documents that lie within documents that stream by, source by source: |A & B| / |A| of the sets A and B
/// of an evaluation document's and a document's shingles. Memory is that of the evaluation documents and of what is
/// found; results are the same for any number of threads and any cut of the stream.
class Containment {
 public:
  /// `share` in (0, 1]: of its shingles that a document must have to contain an evaluation document.
  Containment(ShingleRule rule, double share, u32 threads);
  ~Containment();
  Containment(const Containment&) = delete;
  Containment& operator=(const Containment&) = delete;

  /// Adds evaluation documents of a set. Sets come in rising order, and all before the first source.
  void add(std::span<const TextView> texts, u32 set);
  /// Must be called before the documents of each source.
  void begin_source();
  /// Looks through documents, the first of which has the number `first`; numbers rise. Returns which of them contain
  /// any of a set, by document and set.
  std::vector<Contained> scan(std::span<const TextView> texts, i64 first);

  /// For each evaluation document; without shingles it is never contained.
  std::vector<BestShare> best() const;
  /// Which evaluation documents are shorter than a shingle: only a whole document can be found to be one of those.
  std::vector<bool> is_short() const;

 private:
  class Scanner;
  struct Raise;

  void begin();
  void merge(std::vector<Contained>& found);
  void lead_less();
  void share_floor(u32 group);

  mutable std::mutex mutex_;
  EvaluationIndex index_;
  u32 threads_;
  std::vector<u32> best_;           // shingles that one document has of each group
  std::vector<i64> best_document_;  // the first such
  std::vector<u32> floors_;         // what it takes more than to tell anything new about a group
  std::vector<Scanner> scanners_;
  std::vector<u32> met_;       // how often shingles were that led to many groups
  u64 visited_ = 0;            // holders, since they were arranged
  u64 visited_as_ranked_ = 0;  // before, since they were ranked
  bool raised_ = false;        // whether a floor was, since they were arranged
  u64 step_ = 0;               // documents of a thread between two merges
};

}  // namespace cuvee
