// synth/checkpoint.hpp — what an enumeration has finished, in a file that survives the process.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "synth/engine.hpp"
#include "synth/enumerate.hpp"

namespace syno::synth {

/// A line of JSON says what is enumerated; each further line is a finished branch of the space, preceded by a
/// check of the line. Lines are only ever appended, each by one write: a process killed at any moment leaves
/// whole lines and perhaps the beginning of one, which the next reader cuts off.
class Checkpoint {
 public:
  /// What has to be the same for a file to be continued.
  struct Space {
    int max_steps = 0;
    bool shape_distance = true;
    std::size_t branches = 0;
    Hash128 fingerprint;  ///< of the branches: differs between builds that search differently
  };
  struct Branch {
    std::size_t number = 0;
    Counters counters;
    std::vector<Found> found;  ///< in the order of the search
  };

  /// Begins the file, or reads it on. FormatError for a file that is no checkpoint, damaged, or of another
  /// version; SpecError for one of another space, one in use, or one that cannot be written.
  Checkpoint(std::string path, const Spec& spec, const Space& space);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  std::vector<Branch> take_finished() { return std::move(finished_); }
  void append(const Branch& branch);  ///< callable from any thread

 private:
  void read(std::string_view text, const std::string& header);
  Branch parse_branch(std::string_view json, std::size_t line) const;
  void write(std::string_view text);

  std::string path_;
  std::string head_;  ///< what every operator's text begins with; left out in the file
  Space space_;
  int file_ = -1;
  std::mutex mutex_;
  std::vector<Branch> finished_;
};

}  // namespace syno::synth
