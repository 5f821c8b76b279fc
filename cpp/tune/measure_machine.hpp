// tune/measure_machine.hpp — the machine model with rates measured on the machine at hand.
#pragma once

#include "machine/machine.hpp"

namespace syno::tune {

/// describe_machine() with the rates measured by micro-benchmarks of generated code, one core: about two
/// seconds, and up to a second more where something else uses the core.
machine::Machine measure_machine(const machine::Cpu& cpu);

}  // namespace syno::tune
