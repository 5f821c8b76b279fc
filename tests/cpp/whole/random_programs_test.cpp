// Property: whatever program somebody writes, it and its derivative compile for every CPU and compute what
// the interpreter says. Each run is in a child process: a crash names its program and its seed.
//
//   RANDOM_PROGRAMS=5000 build/release/test_whole     as many programs; 150 otherwise
//   RANDOM_PROGRAMS_SEED=1234                         the first seed, to see one again: RANDOM_PROGRAMS=1
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "construct/gensor.hpp"
#include "jit/kernel.hpp"
#include "lower/derivative.hpp"
#include "nest/reads.hpp"
#include "nest/unwritten.hpp"
#include "program/interpret.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "schedule/fixture.hpp"
#include "support/error.hpp"
#include "whole/random_chain.hpp"

namespace syno {
namespace {

using nest::Dtype;

/// What parent and child share: how far the child is, and what it found.
struct Report {
  std::uint64_t seed = 0;
  std::size_t kernels = 0, derivatives = 0, rounded = 0;
  char at[16 << 10] = {};     ///< what is being done, with the program
  char wrong[64 << 10] = {};  ///< what went wrong so far
  std::size_t wrong_count = 0;
  void say(const std::string& text) { copy(at, sizeof at, text); }
  void add_wrong(const std::string& text) {
    ++wrong_count;
    const std::size_t used = std::strlen(wrong);
    copy(wrong + used, sizeof wrong - used, text + "\n");
  }

 private:
  static void copy(char* to, std::size_t room, const std::string& text) {
    const std::size_t count = std::min(text.size(), room - 1);
    std::memcpy(to, text.data(), count);
    to[count] = '\0';
  }
};

struct Case {
  const program::Program& program;
  Dtype dtype;
  const machine::Cpu& cpu;
  Random& random;
};

/// As users' kernels are made, or with sketches and numbers by lot.
schedule::Schedule schedule_of(const Case& c, const std::vector<std::string>& constants) {
  const machine::Machine machine = machine::describe_machine(c.cpu);
  switch (c.random.below(4)) {
    case 0:
      return construct::default_schedule(c.program, c.dtype, machine.target(1), constants);
    case 1:
      return construct::construct(c.program, c.dtype, machine.target(1), schedule::by_lot(c.random, ""),
                                  constants);
    default: {
      construct::ConstructOptions options;
      options.explain = false;
      options.constants = constants;
      options.seed = c.random.below(1000);
      return construct::construct(c.program, c.dtype, machine, options).schedule;
    }
  }
}

/// The same loops in double precision: what is still wrong there is no rounding.
nest::LoopNest in_double(nest::LoopNest nest) {
  for (nest::Buffer& buffer : nest.buffers) buffer.dtype = Dtype::F64;
  return nest;
}

/// The nests that a call consists of, what is prepacked first.
std::vector<nest::LoopNest> nests_of(const program::Program& p, const schedule::Schedule& schedule) {
  if (auto parts = schedule::apply_prepacked(p, schedule))
    return {std::move(parts->prepack), std::move(parts->call)};
  return {schedule::apply(p, schedule)};
}

/// How far results in double precision lie from the interpreter's at worst, of 1 or of what is larger. Unlike
/// verify() it knows no largest result to compare with: gradients that cancel are rounding alone.
double worst_in_double(const Case& c, const std::vector<nest::LoopNest>& nests) {
  Random random = c.random.fork("values");
  schedule::Arguments values;
  for (const auto id : c.program.inputs()) {
    program::Values<double> made{program::shape_of(c.program, id), {}};
    std::int64_t count = 1;
    for (const std::int64_t extent : made.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) made.data.push_back(2 * random.unit() - 1);
    values[c.program.tensor(id).name] = std::move(made);
  }
  const auto wanted = program::interpret(c.program, values);
  for (const nest::LoopNest& nest : nests) {
    const nest::LoopNest exact = in_double(nest);
    std::vector<jit::View> views;
    for (const auto id : nest::arguments(exact)) {
      const nest::Buffer& buffer = exact.buffer(id);
      auto& memory = values[buffer.name];
      std::int64_t count = 1;
      for (const std::int64_t extent : buffer.extents) count *= extent;
      if (buffer.kind == nest::BufferKind::Output)
        memory = {buffer.extents, std::vector<double>(static_cast<std::size_t>(count),
                                                      std::numeric_limits<double>::quiet_NaN())};
      views.push_back({memory.data.data(), buffer.extents, nest::row_major_strides(buffer.extents)});
    }
    jit::compile(exact, {"", &c.cpu, true})->call(views, 1);
  }
  double worst = 0;
  for (const auto& [name, expected] : wanted) {
    const auto& got = values.at(name).data;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] == expected.data[i] || (std::isnan(got[i]) && std::isnan(expected.data[i]))) continue;
      const double apart = std::abs(got[i] - expected.data[i]) / std::max(1.0, std::abs(expected.data[i]));
      worst = std::max(worst, std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart);
    }
  }
  return worst;
}

constexpr std::int64_t kReadable =
    20'000;  ///< multiply-adds of a program whose reads are looked at one by one

void check(const Case& c, const std::string& what, Report& report) {
  const jit::CompileOptions options{"", &c.cpu, true};
  std::vector<std::string> constants;
  if (c.random.below(5) == 0)
    for (const auto id : c.program.inputs())
      if (c.program.tensor(id).role == program::Role::Weight) constants.push_back(c.program.tensor(id).name);
  const schedule::Schedule made = schedule_of(c, constants);
  const auto nests = nests_of(c.program, made);
  ++report.kernels;
  for (const nest::LoopNest& nest : nests) {
    if (!nest.parameters.empty() || program::cost(c.program, 0).flops > kReadable) continue;
    const int unwritten = nest::testing::Reads(nest::with_unwritten_zero(nest)).unwritten;
    if (unwritten > 0)
      report.add_wrong(
          fmt::format("{}: reads {} places that nobody wrote\n{}", what, unwritten, to_text(made)));
  }
  const auto kernel = jit::compile(nests.front(), options);
  const auto result = nests.size() == 1
                          ? jit::verify(*kernel, c.program)
                          : jit::verify(*kernel, *jit::compile(nests.back(), options), c.program);
  if (result) return;
  const double worst = worst_in_double(c, nests);
  if (worst < 1e-9) {
    ++report.rounded;
    return;
  }
  report.add_wrong(fmt::format("{}: wrong by {:.3g}, {}; in float64 by {:.3g}\n{}", what, result.max_rel_err,
                               result.detail, worst, to_text(made)));
}

/// The program of a seed, then its derivative, for every CPU.
void try_seed(std::uint64_t seed, const std::vector<machine::Cpu>& cpus, Report& report) {
  report.say(fmt::format("seed {}, making the program", seed));
  const std::string text = testing::RandomChain(seed)();
  const auto stage = [&](std::string_view what) {
    const std::string said = fmt::format("seed {}, {}\n{}", seed, what, text);
    report.say(said);
    return said;
  };
  stage("parsing");
  try {
    const program::Program forward = program::parse(text);
    std::vector<std::pair<std::string, program::Program>> programs{{"forward", forward}};
    stage("derivative");
    std::vector<std::string> inputs;
    for (const auto id : forward.inputs()) inputs.push_back(forward.tensor(id).name);
    Random random(seed);
    while (inputs.size() > 1 && random.below(2))
      inputs.erase(inputs.begin() + static_cast<std::ptrdiff_t>(random.below(inputs.size())));
    try {
      if (!inputs.empty())
        programs.emplace_back("derivative by " + fmt::format("{}", fmt::join(inputs, ", ")),
                              lower::derivatives(forward, inputs));
    } catch (const VerifyError&) {  // such as the product of what is no read
    }
    report.derivatives += programs.size() - 1;
    const Dtype dtype = random.below(4) == 0 ? Dtype::F64 : Dtype::F32;
    for (const auto& [name, program] : programs)
      for (const machine::Cpu& cpu : cpus) {
        const std::string what = stage(fmt::format("{} in {} on {}", name, nest::name_of(dtype), cpu.name));
        check({program, dtype, cpu, random}, what, report);
      }
  } catch (const std::exception& error) {
    report.add_wrong(fmt::format("{}\n{}", report.at, error.what()));
  }
}

std::int64_t number_from_environment(const char* name, std::int64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoll(value, nullptr, 10) : otherwise;
}

constexpr std::int64_t kParts = 10;  ///< tests that share the programs, so that each is short

class RandomPrograms : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(RandomPrograms, ComputeWhatTheInterpreterSays) {
  const auto first = static_cast<std::uint64_t>(number_from_environment("RANDOM_PROGRAMS_SEED", 1));
  const auto count =
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, number_from_environment("RANDOM_PROGRAMS", 150)));
  constexpr unsigned kMostSeconds = 600;  // for one program; a guard against hanging only
  void* memory = ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* report = new (memory) Report;
  std::uint64_t seed = first + static_cast<std::uint64_t>(GetParam());
  for (; seed < first + count; seed += kParts) {
    report->seed = seed;
    std::fflush(nullptr);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::vector<machine::Cpu> cpus{jit::cpu_named("host")};
      if (cpus[0].features.find("+avx2") != std::string::npos) cpus.push_back(jit::cpu_named("x86-64-v3"));
      cpus.push_back(jit::cpu_named("generic"));
      for (; report->seed < first + count; report->seed += kParts) {
        ::alarm(kMostSeconds);
        try_seed(report->seed, cpus, *report);
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    seed = report->seed;
    if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0)
      ADD_FAILURE() << "the process ended by "
                    << (WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status)) : "itself") << " at "
                    << report->at;
  }
  EXPECT_EQ(report->wrong_count, 0U) << report->wrong;
  EXPECT_LE(report->rounded * 20, report->kernels + 100) << "too many of these programs are ill-conditioned";
  if (count >= 100) EXPECT_GT(report->derivatives * 4, count / kParts) << "hardly any has a derivative";
  RecordProperty("kernels", static_cast<int>(report->kernels));
  RecordProperty("rounded", static_cast<int>(report->rounded));
  ::munmap(memory, sizeof(Report));
}

INSTANTIATE_TEST_SUITE_P(All, RandomPrograms, ::testing::Range<std::int64_t>(0, kParts));

}  // namespace
}  // namespace syno
