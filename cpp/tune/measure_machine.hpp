// tune/measure_machine.hpp — the machine model with rates measured on the machine at hand.
#pragma once

#include <cstdint>

#include "machine/machine.hpp"

namespace syno::tune {

/// describe_machine() with the rates measured by micro-benchmarks of generated code, one core: about two
/// seconds, and up to a second more where something else uses the core.
machine::Machine measure_machine(const machine::Cpu& cpu);

/// Nanoseconds of a load whose address the load before it gives: one cycle through all lines of `bytes` in
/// random order. Ones are left where it went.
double measure_latency(std::int64_t bytes, std::int64_t line, float* memory);

}  // namespace syno::tune
