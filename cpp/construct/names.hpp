// construct/names.hpp — the words of the levels below that this one is written in.
#pragma once

#include "machine/machine.hpp"
#include "machine/predict.hpp"
#include "machine/tile_cost.hpp"
#include "schedule/plan.hpp"
#include "schedule/schedule.hpp"

namespace syno::construct {

using machine::kMostRows;
using machine::kMostVectors;
using machine::Machine;
using machine::MemoryLevel;
using machine::Prediction;
using machine::Target;
using machine::Tile;
using nest::AffineForm;
using nest::AffineForms;
using nest::Atom;
using nest::Condition;
using nest::Dtype;
using nest::LoopKind;
using nest::LoopNest;
using schedule::Decision;
using schedule::Plan;
using schedule::PlannedLoop;
using schedule::Schedule;
using schedule::ScopePlan;
using symbolic::ExprId;
using symbolic::Interval;

}  // namespace syno::construct
