// program/common_scopes.hpp — common sub-expression elimination among scopes: what two scopes compute alike
// is computed once.
#pragma once

#include "program/program.hpp"

namespace syno::program {

/// The program without scopes that compute what another one computes already: with iterators over the same
/// ranges in the same order, the same reduction and the same body of the same tensors, themselves found equal
/// before. Readers read the one that stays: an output where there is one of them. Of two outputs both stay,
/// as do scopes that add to what is there. A mean and a variance of the same numbers have one mean.
Program with_common_scopes(Program program);

}  // namespace syno::program
