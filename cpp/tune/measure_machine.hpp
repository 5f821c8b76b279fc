// tune/measure_machine.hpp — the machine model with rates measured on the machine at hand.
#pragma once

#include <cstdint>

#include "machine/machine.hpp"

namespace syno::tune {

/// describe_machine() with the rates measured by micro-benchmarks of generated code, one core: about ten
/// seconds.
machine::Machine measure_machine(const machine::Cpu& cpu);

/// Nanoseconds of a load whose address the load before it gives: one cycle through all lines of `bytes` in
/// random order. Ones are left where it went.
double measure_latency(std::int64_t bytes, std::int64_t line, float* memory);

/// How many pages a core touches without walking through tables, to the nearest half power of two, and what a
/// walk takes: from loads of a line a page beside loads of as many lines that lie together. `bytes` of memory
/// from a beginning of a page on. Nothing (0 pages) where these take as long, as in pages of another size.
machine::Tlb measure_tlb(std::int64_t bytes, std::int64_t page, std::int64_t line, float* memory);

}  // namespace syno::tune
