// program/without_empty.hpp — what is left of a computation where some of its extents are 0.
#pragma once

#include "program/program.hpp"

namespace syno::program {

/// Programs have no empty ranges. One whose tensors have extents of 0 is given twice, concrete, with 2 and
/// with 3 in their place, in which all extents are affine; what comes back computes its outputs without what
/// is empty: tensors without elements are gone, from the inputs too; a sum over nothing is 0, a product 1, a
/// mean not a number; what is read of an empty tensor is the fill. ShapeError where an output is empty
/// itself, for a maximum or minimum of nothing, as PyTorch has it, and where an index depends on the extents.
Program without_empty(const Program& two, const Program& three);

}  // namespace syno::program
