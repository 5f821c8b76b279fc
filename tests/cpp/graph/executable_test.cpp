// A network that runs in one call: its kernels may come ready-made.
#include "graph/executable.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "support/error.hpp"

namespace syno::graph {
namespace {

constexpr std::int64_t kCount = 16, kBytes = kCount * 4;

/// y = 2 x + 1, by way of its workspace.
void doubled(void* const* arguments, void* workspace, jit::ParallelRunner* /*parallel*/, void* /*pool*/) {
  const auto* x = static_cast<const float*>(arguments[0]);
  auto* y = static_cast<float*>(arguments[1]);
  auto* between = static_cast<float*>(workspace);
  for (std::int64_t i = 0; i < kCount; ++i) between[i] = 2 * x[i];
  for (std::int64_t i = 0; i < kCount; ++i) y[i] = between[i] + 1;
}

std::shared_ptr<const jit::NativeKernel> native() {
  return std::make_shared<jit::NativeKernel>(jit::NativeKernel{doubled, 0, kBytes, {kBytes, kBytes}});
}

Argument at(Argument::Kind kind, std::int64_t place) { return {kind, place, nullptr}; }

Step step(Argument from, Argument to) {
  Step made;
  made.native = native();
  made.arguments = {from, to};
  return made;
}

/// y = 4 x + 3 in two steps.
Executable twice() {
  using Kind = Argument::Kind;
  std::vector<Step> steps{step(at(Kind::External, 0), at(Kind::Arena, 64)),
                          step(at(Kind::Arena, 64), at(Kind::External, 1))};
  return {std::move(steps), 128, 2, {}};
}

TEST(Executable, RunsKernelsThatCameReadyMade) {
  const Executable network = twice();
  float x[kCount], y[kCount] = {};
  for (std::int64_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(i);
  void* const buffers[] = {x, y};
  for (const int threads : {1, 4}) {
    network.run(buffers, threads);
    for (std::int64_t i = 0; i < kCount; ++i) EXPECT_EQ(y[i], 4 * x[i] + 3);
  }
  EXPECT_EQ(network.profile(buffers, 1, 3).size(), 2u);
}

TEST(Executable, RunsOnSeveralThreadsAtOnce) {
  const Executable network = twice();
  std::vector<std::thread> workers;
  std::vector<int> wrong(4, 0);
  for (int worker = 0; worker < 4; ++worker)
    workers.emplace_back([&, worker] {
      float x[kCount], y[kCount];
      void* const buffers[] = {x, y};
      for (int turn = 0; turn < 200; ++turn) {
        for (std::int64_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(worker * 1000 + turn + i);
        network.run(buffers, 1);
        for (std::int64_t i = 0; i < kCount; ++i) wrong[worker] += y[i] != 4 * x[i] + 3;
      }
    });
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

/// y[i] = n, the size that a call brings along.
void sized(void* const* arguments, void* /*workspace*/, jit::ParallelRunner* /*parallel*/, void* /*pool*/) {
  auto* y = static_cast<float*>(arguments[1]);
  for (std::int64_t i = 0; i < kCount; ++i)
    y[i] = static_cast<float>(reinterpret_cast<std::intptr_t>(arguments[2]));
}

TEST(Executable, GivesKernelsTheSizesOfACall) {
  using Kind = Argument::Kind;
  const auto made = [](std::vector<std::int64_t> values) {
    Step first = step(at(Kind::External, 0), at(Kind::External, 1));
    first.native =
        std::make_shared<jit::NativeKernel>(jit::NativeKernel{sized, 0, 0, {kBytes, kBytes}, {{2, 9}}});
    first.values = std::move(values);
    // Behind it a step whose arguments the caller gives, too.
    return Executable({first, step(at(Kind::External, 1), at(Kind::External, 2))}, 0, 3, {});
  };
  float x[kCount] = {}, y[kCount] = {}, z[kCount] = {};
  void* const buffers[] = {x, y, z};
  made({7}).run(buffers, 1);
  for (std::int64_t i = 0; i < kCount; ++i) EXPECT_EQ(z[i], 15);
  for (const std::vector<std::int64_t>& wrong : {std::vector<std::int64_t>{}, {1}, {10}, {7, 7}})
    EXPECT_THROW(made(wrong), ShapeError);
}

TEST(Executable, RefusesArgumentsThatDoNotFit) {
  using Kind = Argument::Kind;
  const auto make = [](Argument from, Argument to, std::int64_t arena = 128) {
    Executable(std::vector<Step>{step(from, to)}, arena, 2, {});
  };
  EXPECT_NO_THROW(make(at(Kind::External, 0), at(Kind::External, 1)));
  EXPECT_THROW(make(at(Kind::External, 2), at(Kind::External, 1)), ShapeError);
  EXPECT_THROW(make(at(Kind::External, -1), at(Kind::External, 1)), ShapeError);
  EXPECT_THROW(make(at(Kind::Arena, 129), at(Kind::External, 1)), ShapeError);
  EXPECT_THROW(make(at(Kind::Arena, 0), at(Kind::External, 1), -1), ShapeError);
  Step fewer = step(at(Kind::External, 0), at(Kind::External, 1));
  fewer.arguments.pop_back();
  EXPECT_THROW(Executable({fewer}, 0, 2, {}), ShapeError);
  EXPECT_THROW(Executable({Step{}}, 0, 2, {}), ShapeError);  // the host's, and there is none
}

}  // namespace
}  // namespace syno::graph
