// lower/derivative.hpp — reverse-mode derivative of a tensor program, as a tensor program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.hpp"

namespace syno::lower {

/// How the cotangent of a read is summed up where index maps tangle what is summed over with what is written:
/// in two steps, of plain indices each, or at once. Which is faster depends on the sizes and on the machine.
enum class Tangled : std::uint8_t { InTwoSteps, AtOnce };

/// The vector-Jacobian product with respect to input `with_respect_to`: a program whose inputs are those of
/// `program` that are needed plus one cotangent `d<output>` for each output, and whose output is
/// `d<with_respect_to>` (with a number behind where that name is taken). An index map is inverted where it
/// inverts (a gather), and accumulated where not (design, level 2: `y[e(x)] += body`). Sums, means, products
/// of reads and every differentiable Function; Max/Min reductions send the cotangent to every place that
/// attains it divided by their number. VerifyError for a program that is not differentiable there, naming the
/// scope and the function.
program::Program derivative(const program::Program& program, const std::string& with_respect_to,
                            Tangled tangled = Tangled::InTwoSteps);

/// The products with respect to several inputs as one program with an output for each, in the order of the
/// names. What they have in common, such as the cotangents of intermediate tensors, is computed once.
/// ShapeError where there are no names or one is there twice; else as derivative().
program::Program derivatives(const program::Program& program, const std::vector<std::string>& with_respect_to,
                             Tangled tangled = Tangled::InTwoSteps);

}  // namespace syno::lower
