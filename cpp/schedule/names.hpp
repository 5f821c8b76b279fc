// schedule/names.hpp — the words of loop nests and indices that this level is written in.
#pragma once

#include "nest/affine.hpp"
#include "nest/loop_nest.hpp"

namespace syno::schedule {

using nest::AffineForm;
using nest::AffineForms;
using nest::Atom;
using nest::Buffer;
using nest::BufferId;
using nest::BufferKind;
using nest::Condition;
using nest::Dtype;
using nest::LoopKind;
using nest::LoopNest;
using nest::StatementId;
using nest::StoreMode;
using nest::ValueId;
using symbolic::ExprId;
using symbolic::Interval;

}  // namespace syno::schedule
