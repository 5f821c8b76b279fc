// derive/names.hpp — the words of programs that this level is written in.
#pragma once

#include "program/program.hpp"
#include "program/scalars.hpp"

namespace syno::derive {

using program::Function;
using program::Iterator;
using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::Scope;
using program::Tensor;
using program::TensorId;
using symbolic::ExprId;
using symbolic::Op;

}  // namespace syno::derive
