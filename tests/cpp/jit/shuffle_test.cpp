// Loads of lanes that lie apart: whole vectors and shuffles give what a gather gives, read nothing outside
// the arrays, and take the place of gathers where they should.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nests.hpp"
#include "shuffled_loads.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

class ShuffledLoad : public ::testing::TestWithParam<ShuffledCase> {};

TEST_P(ShuffledLoad, ComputesWhatTheInterpreterDoes) {
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  std::uint64_t seed = 1;
  for (const std::string dtype : {"f32", "f64", "bf16"})
    for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic})
      expect_as_interpreted(nest::parse_loop_nest(with_dtype(GetParam(), dtype)), seed++, cpu, 1);
}

/// An array that ends where memory ends, or begins where it begins.
class AtTheEdge {
 public:
  AtTheEdge(std::size_t bytes, bool at_end) : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    inside_ = (bytes + page_ - 1) / page_ * page_;
    base_ = static_cast<char*>(
        ::mmap(nullptr, inside_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(base_ + page_, inside_, PROT_READ | PROT_WRITE);
    data_ = base_ + page_ + (at_end ? inside_ - bytes : 0);
  }
  ~AtTheEdge() { ::munmap(base_, inside_ + 2 * page_); }
  AtTheEdge(const AtTheEdge&) = delete;
  AtTheEdge& operator=(const AtTheEdge&) = delete;
  char* data() const { return data_; }

 private:
  std::size_t page_, inside_;
  char *base_, *data_;
};

/// A read outside ends the process.
void call_at_the_edges(const Kernel& kernel) {
  for (const bool at_end : {false, true}) {
    std::vector<std::unique_ptr<AtTheEdge>> memory;
    std::vector<View> views;
    for (const auto id : nest::arguments(kernel.nest())) {
      const Buffer& buffer = kernel.nest().buffer(id);
      std::int64_t low = 0, high = 0;
      for (std::size_t d = 0; d < buffer.extents.size(); ++d) {
        const std::int64_t reach = (buffer.extents[d] - 1) * buffer.strides[d];
        (reach < 0 ? low : high) += reach;
      }
      memory.push_back(std::make_unique<AtTheEdge>(static_cast<std::size_t>(high - low + 1) * 4, at_end));
      views.push_back({memory.back()->data() - low * 4, buffer.extents, buffer.strides});
    }
    kernel.call(views, 1);
  }
}

TEST_P(ShuffledLoad, ReadsNothingOutsideTheArrays) {
  for (const std::string name : {"host", "x86-64-v3", "generic"}) {
    const Cpu cpu = cpu_named(name);
    CompileOptions options;
    options.cpu = &cpu;
    call_at_the_edges(*compile(nest::parse_loop_nest(with_dtype(GetParam(), "f32")), options));
  }
}

TEST_P(ShuffledLoad, TakesThePlaceOfAGather) {
  const Cpu cpu = cpu_named("x86-64-v4");
  CompileOptions options;
  options.cpu = &cpu;
  const auto kernel = compile(nest::parse_loop_nest(with_dtype(GetParam(), "f32")), options);
  EXPECT_EQ(kernel->llvm().find("masked.gather") != std::string::npos, GetParam().gathers) << kernel->llvm();
}

/// A load whose lanes lie in rows that overlap or lie apart, some of them outside the array, on conditions of
/// lanes, of loops, and of both.
std::string random_load(Random& random) {
  const auto pick = [&](std::uint64_t least, std::uint64_t most) {
    return least + random.below(most - least + 1);
  };
  const std::uint64_t lanes = std::uint64_t{4} << pick(0, 2), row = pick(1, lanes), step = pick(0, 9);
  const std::uint64_t stride = pick(0, 3), more = pick(0, 9), loops = pick(1, 5), before = pick(0, 4);
  const std::uint64_t size = pick(1, loops * more + (lanes / row) * step + row * stride + 1);
  const std::string at =
      fmt::format("{} * (i / {}) + {} * (i % {}) + {} * o - {}", step, row, stride, row, more, before);
  std::string conditions = fmt::format("{} in 0..{}", at, size);
  const auto maybe = [&](const std::string& about, std::uint64_t most) {
    if (random.below(2) == 0) return;
    const std::uint64_t begin = pick(0, most / 2);
    conditions += fmt::format(", {} in {}..{}", about, begin, pick(begin + 1, most + 1));
  };
  maybe(fmt::format("i % {}", row), row);
  maybe(fmt::format("i / {} + o", row), lanes / row + loops);
  maybe("i + o", lanes + loops);
  maybe("o", loops);
  return fmt::format(
      "input x: T[{}]\noutput y: T[{}, {}]\nfor o in 0..{}\n  for i in 0..{} vector\n"
      "    y[o, i] = x[{}] {{{} else {}}}\n",
      size, loops, lanes, loops, lanes, at, conditions, random.below(3));
}

TEST(RandomShuffledLoad, ComputesWhatTheInterpreterDoes) {
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  Random random(20261124);
  for (int round = 0; round < 150; ++round) {
    const ShuffledCase drawn{"random", random_load(random)};
    SCOPED_TRACE(drawn.text);
    const std::string dtype = std::vector<std::string>{"f32", "f64", "bf16"}[random.below(3)];
    const LoopNest nest = nest::parse_loop_nest(with_dtype(drawn, dtype));
    for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic})
      expect_as_interpreted(nest, 100 + static_cast<std::uint64_t>(round), cpu, 1);
  }
}

class SizedLoad : public ::testing::TestWithParam<ShuffledCase> {};

void expect_right_and_inside(const ShuffledCase& about, const std::string& dtype, std::uint64_t seed) {
  for (const std::string name : {"host", "x86-64-v3", "generic"}) {
    const LoopNest nest = nest::parse_loop_nest(with_dtype(about, dtype));
    const Cpu cpu = cpu_named(name);
    CompileOptions options;
    options.cpu = &cpu;
    const auto kernel = compile(nest, options);
    for (const std::int64_t size : about.sizes) {
      SCOPED_TRACE(dtype + " " + name + " " + std::to_string(size));
      const auto here = kernel->at({size});
      const LoopNest one = nest::specialised(nest, {size});
      Random random(seed++);
      NestRun run = random_arguments(one, random);
      here->call(run.views(), 1);
      expect_results(one, run, nest::interpret(one, run.inputs));
      if (dtype == "f32") call_at_the_edges(*here);
    }
  }
}

TEST_P(SizedLoad, ComputesWhatTheInterpreterDoesAndReadsNothingOutside) {
  std::uint64_t seed = 1;
  for (const std::string dtype : {"f32", "f64", "bf16"}) {
    expect_right_and_inside(GetParam(), dtype, seed);
    seed += 100;
  }
}

/// Lanes that lie at distances in a row whose length is a size, under conditions of the row's ends, of
/// further places within it, and of the iteration, of which some say which rows there are.
ShuffledCase random_sized_load(Random& random) {
  const auto pick = [&](std::uint64_t least, std::uint64_t most) {
    return least + random.below(most - least + 1);
  };
  const std::uint64_t least = pick(1, 40), most = least + pick(0, 40), stride = pick(1, 4), taps = pick(1, 3);
  const std::uint64_t before = pick(0, 3), blocks = (most + 15) / 16,
                      tighter = pick(0, 3) == 0 ? pick(1, 9) : 0;
  const bool told = random.below(4) == 0;  // which row it is follows from where in it
  const std::uint64_t rows = told ? (most - 1 + before) / (16 * stride) + 1 : 3;
  std::string sum;
  for (std::uint64_t t = 0; t < taps; ++t) {
    const std::string at = fmt::format("{} * o + {} * i + {}", 16 * stride, stride,
                                       static_cast<std::int64_t>(t) - static_cast<std::int64_t>(before));
    std::string conditions = fmt::format("{} in 0..{}, {} - n in -{}..{}", at, most + 1, at, 4 * most + 99,
                                         -static_cast<std::int64_t>(tighter));
    if (told) conditions += fmt::format(", o in 0..{}", rows);
    if (random.below(4) == 0) conditions += fmt::format(", i + o in {}..{}", pick(0, 3), pick(4, 30));
    sum += fmt::format("{}x[{}, {}] {{{} else {}}}", t == 0 ? "" : " + ", told ? "o" : "c", at, conditions,
                       random.below(3));
  }
  ShuffledCase drawn{"random", ""};
  drawn.text = fmt::format(
      "parameter n in {}..{}\ninput x: T[{}, n]\noutput y: T[3, {}, 16]\nfor c in 0..3\n  for o in 0..{}\n"
      "    for i in 0..16 vector\n      y[c, o, i] = {}\n",
      least, most + 1, rows, blocks, blocks, sum);
  drawn.sizes = {static_cast<std::int64_t>(least), static_cast<std::int64_t>((least + most) / 2),
                 static_cast<std::int64_t>(most)};
  return drawn;
}

TEST(RandomSizedLoad, ComputesWhatTheInterpreterDoesAndReadsNothingOutside) {
  Random random(20261127);
  for (int round = 0; round < 60; ++round) {
    const ShuffledCase drawn = random_sized_load(random);
    SCOPED_TRACE(drawn.text);
    expect_right_and_inside(drawn, random.below(4) == 0 ? "bf16" : "f32",
                            100 * static_cast<std::uint64_t>(round));
  }
}

TEST(SizedLoadOfBothColumns, TakesEachVectorOnce) {
  const Cpu cpu = cpu_named("x86-64-v4");
  CompileOptions options;
  options.cpu = &cpu;
  const ShuffledCase& both = sized_cases()[2];
  const std::string text = compile(nest::parse_loop_nest(with_dtype(both, "f32")), options)->llvm();
  std::size_t loads = 0;
  for (std::size_t at = 0; (at = text.find("call <16 x float> @llvm.masked.load", at)) != std::string::npos;
       ++at)
    ++loads;
  EXPECT_EQ(loads, 2) << text;  // of 32 elements, for both columns
}

TEST_P(SizedLoad, TakesThePlaceOfAGather) {
  for (const std::string name : {"x86-64-v3", "x86-64-v4"}) {
    const Cpu cpu = cpu_named(name);
    CompileOptions options;
    options.cpu = &cpu;
    const auto kernel = compile(nest::parse_loop_nest(with_dtype(GetParam(), "f32")), options);
    EXPECT_EQ(kernel->llvm().find("masked.gather"), std::string::npos) << kernel->llvm();
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SizedLoad, ::testing::ValuesIn(sized_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Table, ShuffledLoad, ::testing::ValuesIn(shuffled_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace syno::jit
