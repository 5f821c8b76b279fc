// graph/executable.hpp — a network that runs in one call: its steps in order, its tensors in one arena.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "graph/builtins.hpp"
#include "jit/kernel.hpp"
#include "jit/native_library.hpp"

namespace syno::graph {

/// Where an argument of a step lies: so many bytes into the arena, in the caller's buffer of this number, or
/// at an address that stays (a weight).
struct Argument {
  enum class Kind : std::uint8_t { Arena, External, Fixed };
  Kind kind = Kind::Arena;
  std::int64_t at = 0;
  void* address = nullptr;
};

/// A kernel, of this process or of a library, on so many threads at most; a built-in; or, where none of them
/// is there, the host.
struct Step {
  std::shared_ptr<const jit::Kernel> kernel;
  std::shared_ptr<const jit::NativeKernel> native;
  std::vector<std::int64_t> values;  ///< of a library's kernel: of the sizes that its calls bring along
  int threads = 1;
  BoundBuiltin builtin;
  std::vector<Argument> arguments;  ///< inputs, then outputs
};

/// Runs a step of the host: its number and its arguments' addresses. What it throws ends the run.
using Host = std::function<void(std::size_t step, std::span<void* const> arguments)>;

/// Never changes; may run on several threads at once: each run takes an arena of its own, which is kept for
/// the next one.
class Executable {
 public:
  /// ShapeError where an argument lies outside of the arena or of the caller's buffers, or a kernel has
  /// another number of arguments or of sizes, or a size outside of its range. KernelError where a kernel is
  /// for another architecture.
  Executable(std::vector<Step> steps, std::int64_t arena_bytes, std::size_t externals, Host host);
  ~Executable();

  /// One run. `externals` are the caller's buffers; KernelError where there is no memory for the arena.
  void run(std::span<void* const> externals, int threads) const;
  /// Median seconds of each step over so many runs.
  std::vector<double> profile(std::span<void* const> externals, int threads, int turns) const;

  std::size_t external_count() const { return externals_; }
  std::size_t step_count() const { return steps_.size(); }
  std::int64_t arena_bytes() const { return arena_bytes_; }

 private:
  struct Frame;
  class Taken;
  void run_step(std::size_t step, const Frame& frame, int threads) const;

  std::vector<Step> steps_;
  std::vector<std::size_t> begins_;                           ///< of each step's arguments among all
  std::vector<std::pair<std::size_t, std::size_t>> patched_;  ///< (argument, caller's buffer)
  std::int64_t arena_bytes_ = 0;
  std::size_t externals_ = 0;
  Host host_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Frame>> free_;
};

}  // namespace syno::graph
