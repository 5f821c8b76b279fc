// jit/kernel.hpp — native kernels: loop nest -> LLVM IR -> machine code, called on the caller's buffers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "machine/cpu.hpp"
#include "nest/loop_nest.hpp"
#include "program/program.hpp"

namespace syno::jit {

using machine::Cpu;
using machine::TargetInfo;
class DrawnInputs;  // jit/check_data.hpp

/// The host's name and exact feature string, or what SYNO_CPU names (`x86-64-v3`, `generic`).
const Cpu& host_cpu();
Cpu cpu_named(const std::string& name);  ///< of this machine's architecture; UnknownName
/// Of a triple such as `aarch64-linux-gnu`, with any CPU that LLVM knows there, `generic`, or
/// `generic+sve256`: some CPU with SVE registers of 256 bits (128, 512). UnknownName where one of them is
/// unknown, with the valid ones.
Cpu cpu_named(const std::string& name, const std::string& triple);

struct View {  ///< caller's memory; strides in elements, any sign
  void* data = nullptr;
  std::vector<std::int64_t> shape, strides;
};

struct CompileOptions {
  std::string cache_directory;  ///< empty: no object cache
  const Cpu* cpu = nullptr;     ///< default: host_cpu()
  bool fresh = false;           ///< compile even what this process or the cache already has (to time it)
};

struct CompileReport {
  double build_ms = 0, codegen_ms = 0, link_ms = 0;
  bool from_cache = false;
  std::int64_t code_bytes = 0;
  int spills = 0;  ///< stack stores and reloads of vector registers in the emitted object
  double hot_spills =
      0;  ///< the same for an iteration of the deepest loop; those a loop further out count a 32nd
};

/// Instructions of one innermost loop of machine code, those of its conditions among them.
struct LoopCode {
  std::int64_t instructions = 0;
  std::int64_t multiply_adds = 0;  ///< fused ones
  std::int64_t loads = 0,
               stores = 0;  ///< instructions that read memory, whatever else they do; only write it
  std::int64_t spills = 0, reloads = 0;  ///< among those: of vector registers on the stack
};
std::vector<LoopCode> innermost_loops(const std::string& object, const Cpu& cpu);

class Kernel {
 public:
  ~Kernel();
  /// One call on `threads` threads of syno's own pool. Views in argument order (inputs, then outputs), of the
  /// nest's dtype, with the strides the nest was made for. Thread-safe; once the views fit, throws only
  /// KernelError where there is no memory for intermediate results, before anything is computed, or where the
  /// kernel is for another architecture.
  void call(std::span<const View> arguments, int threads) const;
  /// The same without any check, for callers that hold raw pointers with the strides of the nest. The kernel
  /// must be for this machine's architecture. Its nest has no parameters, or their values follow the
  /// pointers.
  void call_unchecked(void* const* pointers, int threads) const;
  void require_runs_here() const;  ///< KernelError where it is for another architecture
  /// This kernel, or the one for the strides of these views (compiled when first asked for, then kept).
  /// ShapeError where a view does not fit: count, shape, an output that overlaps itself or another argument.
  const Kernel& variant_for(std::span<const View> arguments) const;

  /// This code for one value of each parameter of its nest: a kernel without parameters, made without
  /// compiling anything. Others cannot be called. ShapeError where a value is outside of its range.
  std::shared_ptr<Kernel> at(const std::vector<std::int64_t>& parameters) const;

  /// This code on arguments of other shapes of as many elements, row-major: a matrix as a vector, say.
  /// ShapeError where numbers of elements differ.
  std::shared_ptr<Kernel> viewed(const std::vector<std::vector<std::int64_t>>& shapes) const;

  const nest::LoopNest& nest() const;
  std::size_t argument_count() const;
  std::string symbol() const;  ///< the function in the object
  const Cpu& cpu() const;      ///< that it was compiled for
  /// Bytes of workspace a caller of the bare object provides: shared, then this many for each thread.
  std::pair<std::int64_t, std::int64_t> workspace_bytes() const;
  const CompileReport& report() const;
  std::string llvm() const;  ///< the IR, as text
  std::string assembly() const;
  std::string object() const;  ///< ELF bytes; needs no LLVM to load
  std::string key() const;     ///< of the object cache
  std::string digest() const;  ///< of key and object, by the cache's secret; empty where compiled `fresh`

 private:
  struct State;
  friend std::shared_ptr<Kernel> compile(const nest::LoopNest&, const CompileOptions&);
  explicit Kernel(std::unique_ptr<State> state);
  std::unique_ptr<State> same_code(nest::LoopNest nest) const;
  std::unique_ptr<State> state_;
};

/// ScheduleError where the nest does not verify, KernelError where no code can be made of it.
std::shared_ptr<Kernel> compile(const nest::LoopNest& nest, const CompileOptions& options = {});

/// What goes wrong without stopping anything (an unusable cache directory) is said here, once a directory.
void set_warning_handler(void (*handler)(const std::string& message));

/// Compares a kernel with the interpreter: all corners of every output, both sides of every tail and border
/// region of the nest, and at least 256 random points; 32 where each is a sum of very many terms, estimated
/// where it has millions. max_rel_err: largest |y - ref|, in a long sum of its absolute terms; the limit (f32
/// 1e-5, f64 1e-12, bf16 2^-8) is what running error analysis allows. Data between -1 and 1; where most
/// results over- or underflow for them, others as well.
struct Verification {
  bool passed = false;
  double max_rel_err = 0;
  double limit = 0;
  std::int64_t points = 0;
  std::string detail;  ///< worst point: its indices, value and reference
  explicit operator bool() const { return passed; }
};
/// How much is compared. Code for a range of sizes is checked at several: they share the random points.
struct Effort {
  std::size_t random_points = 256;
  double most_terms = 1 << 25;  ///< that the interpreter adds up for one output: a second
};
Verification verify(const Kernel& kernel, const program::Program& program, std::uint64_t seed = 0,
                    const Effort& effort = {});
/// The same for the two kernels of schedule::apply_prepacked(), one after the other.
Verification verify(const Kernel& prepack, const Kernel& call, const program::Program& program,
                    std::uint64_t seed = 0, const Effort& effort = {});
struct SizedKernel {
  const Kernel* call = nullptr;
  const program::Program* program = nullptr;  ///< what it should compute
};
/// Draws the inputs that such a check takes where they are not there yet: of many kernels of one program, in
/// processes that are forked off, they are the same ones. `prepack` may be null.
void draw_inputs(const Kernel* prepack, const Kernel& call, const program::Program& program,
                 std::uint64_t seed, DrawnInputs& drawn);
/// As above, with the inputs that were drawn with the same seed.
Verification verify(const Kernel* prepack, const Kernel& call, const program::Program& program,
                    std::uint64_t seed, const Effort& effort, DrawnInputs& drawn);
/// The same at several sizes, until one does not pass. What is constant has one shape at all of them: it is
/// drawn, and packed by `prepack` if there is one, once.
std::vector<Verification> verify_at_sizes(const Kernel* prepack, const std::vector<SizedKernel>& sized,
                                          std::uint64_t seed = 0, const Effort& effort = {});
/// The same for what computes the program elsewhere, on a GPU for example: `run` gets the memory of the
/// arguments of the nest, row-major, by name. The nest, of the same program, says of which dtypes they are
/// and where to look closely.
Verification verify(const nest::LoopNest& nest,
                    const std::function<void(const std::map<std::string, void*>&)>& run,
                    const program::Program& program, std::uint64_t seed = 0);

}  // namespace syno::jit
