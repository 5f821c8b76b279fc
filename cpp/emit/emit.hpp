// emit/emit.hpp — programs as text for other systems. Every text computes exactly what the interpreter
// computes. Programs are concrete (program::at() chooses a valuation; one with a single valuation is taken at
// that one).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emit/triton_tiles.hpp"
#include "machine/gpu.hpp"
#include "program/program.hpp"

namespace syno::emit {

/// A PyTorch module in plain ATen: differentiable by autograd, no Python loops; views, pads, einsum and
/// convolutions. `forward` takes the inputs with Role::Input in order; weights are parameters of the same
/// names, drawn so that variances are kept. Where the first dimension of every input is passed through
/// untouched, any batch size works. Needs only `torch`.
std::string to_pytorch(const program::Program& program, const std::string& class_name = "Operator");

/// TVM tensor expressions (Syno §8): a Python module with `build()`, which returns the placeholders (in the
/// order of Program::inputs(), then constants as `CONSTANTS` has them) and the output tensors. Needs only
/// `tvm.te`.
std::string to_te(const program::Program& program, const std::string& dtype = "float32");

/// C11 with a `main`: one function a program, loops as written, no allocation but for intermediates. `main`
/// fills the inputs from a fixed sequence, runs, and compares `points` sampled elements of every output with
/// values that the interpreter gave; it prints a line and returns 0 only if all agree. `cc -std=c11 file.c
/// -lm`.
struct COptions {
  std::string function = "syno_operator";
  bool double_precision = false;
  std::size_t points = 32;
  std::uint64_t seed = 0;
};
std::string to_c(const program::Program& program, const COptions& options = {});

/// Triton kernels for a GPU: a Python module with `run(*inputs)`, which gives the outputs as a tuple. A scope
/// is a kernel; it has tiles chosen from the model of the GPU, and is a matrix product (`tl.dot`, in the
/// precision asked for) where its factors can be shared out to two operands and that is predicted to be
/// faster. float16 and bfloat16 are how inputs and outputs lie in memory: what is in between, and sums, are
/// float32. Sums of a scope are added in the same order at each run, but for accumulating scopes, which add
/// atomically. Needs only `torch` and `triton`. KernelError for what Triton has no function for.
struct TritonKernel {
  std::string output;  ///< the tensor that it computes
  Tile tile;
  std::size_t candidates = 0;  ///< tiles that there were to choose from
};
struct TritonText {
  std::string source;
  std::vector<TritonKernel> kernels;  ///< one a scope
  double seconds = 0;                 ///< predicted, of one run
};
struct TritonOptions {
  std::string dtype = "float32";
  std::optional<std::uint64_t>
      variant;  ///< of the tiles that fit, others than the best: equal numbers, equal tiles
  std::string precision = "ieee";  ///< of float32 products: "ieee", or "tf32x3"
  std::vector<std::size_t> ranks;  ///< by scope, which candidate in the order of predicted times is taken
};
TritonText to_triton(const program::Program& program, const machine::Gpu& gpu,
                     const TritonOptions& options = {});

/// LaTeX for people, without the dollars: `y[n, o] = \sum_{c} x[n, c] \cdot w[o, c]`, several scopes as
/// lines of `aligned`. Comparisons stand in Iverson's brackets; ranges that begin at 0 are left out.
std::string to_latex(const program::Program& program);

/// Graphviz: tensors and the scopes between them, with shapes and formulas.
std::string to_graphviz(const program::Program& program);

}  // namespace syno::emit
