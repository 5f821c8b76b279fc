// tune/measure.hpp — what a schedule really takes: compiled in parallel, verified, then timed serially and
// alone. Whatever goes wrong with a candidate is an outcome with a reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.hpp"
#include "schedule/schedule.hpp"

namespace syno::tune {

enum class Outcome : std::uint8_t {
  Ok,
  NotApplicable,  ///< the schedule does not apply to the program, or no code can be made of it
  Wrong,          ///< computes something else than the interpreter
  Crashed,        ///< the child process that ran it was killed by a signal
  TimedOut,       ///< no result within the limit
  TooMuchMemory,  ///< needs more than the limit
};
std::string_view name_of(Outcome outcome);

struct MeasureOptions {
  int threads = 1;     ///< of a call
  bool cold = false;   ///< caches are flushed before every call; otherwise arguments are warm
  bool verify = true;  ///< against the interpreter, before anything is timed
  int samples = 9;
  double sample_s = 2e-3;  ///< a sample repeats the call until it has lasted this long
  double limit_s = 10;     ///< for verifying and timing one candidate
  std::int64_t memory_bytes = std::int64_t{2} << 30;  ///< arguments and workspace together
  int compilers = 0;                                  ///< threads that compile; 0: as many as the machine has
  int pin = -1;           ///< the CPU to run on with one thread; -1: the last one this process may use
  std::string lock_file;  ///< held while something is timed, by every process of the machine; empty: no lock
  double lock_wait_s = 60;  ///< after this long it is timed without, and noted
  std::string cache_directory;
};

struct Measured {
  Outcome outcome = Outcome::Ok;
  std::string reason;                       ///< where not Ok
  double median_s = 0, q1_s = 0, q3_s = 0;  ///< of one call
  int samples = 0;
  int calls = 0;  ///< in a sample
  double compile_ms = 0;
  int spills = 0;
  std::string note;  ///< what may have disturbed the times; empty: nothing known
};

/// Measures candidates for a concrete program, in order. Each runs in a child process with limits of its own.
/// Of a candidate that prepacks, calls are timed.
std::vector<Measured> measure(const program::Program& concrete,
                              const std::vector<schedule::Schedule>& candidates,
                              const MeasureOptions& options);

/// time(a) / time(b), both called in turns within one child process, by the first quartile of each; 0 where
/// either fails.
double compare(const program::Program& concrete, const schedule::Schedule& a, const schedule::Schedule& b,
               const MeasureOptions& options);

}  // namespace syno::tune
