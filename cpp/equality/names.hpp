// equality/names.hpp — the words of programs that this level is written in.
#pragma once

#include "program/program.hpp"

namespace syno::equality {

using program::Function;
using program::Iterator;
using program::Program;
using program::Reduction;
using program::Role;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::Scope;
using program::Tensor;
using program::TensorId;
using symbolic::Arena;
using symbolic::ExprId;
using symbolic::Range;
using symbolic::Size;
using symbolic::Sizes;

}  // namespace syno::equality
