#include "graph/executable.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>

#include "support/error.hpp"

namespace syno::graph {

namespace {

constexpr std::size_t kAlignment = 64;

/// ShapeError where the kernel of a step has not as many sizes as it brings along, or one has another range.
void require_values(std::size_t number, const Step& step) {
  const auto& ranges = step.native->parameters;
  if (ranges.size() != step.values.size())
    fail<ShapeError>("network", "step {} has {} sizes; its kernel takes {}", number, step.values.size(),
                     ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (step.values[i] < ranges[i].first || step.values[i] > ranges[i].second)
      fail<ShapeError>("network", "size {} of step {} is {}; its kernel was made for {} to {}", i, number,
                       step.values[i], ranges[i].first, ranges[i].second);
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

#if defined(__x86_64__)
__attribute__((target("avx"))) void zero_upper_halves() { __builtin_ia32_vzeroupper(); }

/// Whoever computed before may have left the upper halves of vector registers as they are. The engine's
/// functions, which know 128 bits, would keep them: each instruction then waits for the last one that wrote
/// its register, and takes twice its time.
void forget_upper_halves() {
  static const bool has_them = __builtin_cpu_supports("avx") != 0;
  if (has_them) zero_upper_halves();
}
#else
void forget_upper_halves() {}
#endif

}  // namespace

/// What one run needs: memory between its steps, and the addresses of all arguments of all steps.
struct Executable::Frame {
  std::unique_ptr<void, Free> arena;
  std::vector<void*> pointers;
};

/// A frame for the time of a run.
class Executable::Taken {
 public:
  Taken(const Executable& executable, std::span<void* const> externals) : executable_(executable) {
    {
      const std::scoped_lock lock(executable_.mutex_);
      if (!executable_.free_.empty()) {
        frame_ = std::move(executable_.free_.back());
        executable_.free_.pop_back();
      }
    }
    if (!frame_) frame_ = made();
    for (const auto& [argument, number] : executable_.patched_)
      frame_->pointers[argument] = externals[number];
  }
  ~Taken() {
    const std::scoped_lock lock(executable_.mutex_);
    if (executable_.free_.size() < executable_.free_.capacity())
      executable_.free_.push_back(std::move(frame_));
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  const Frame& frame() const { return *frame_; }

 private:
  std::unique_ptr<Frame> made() const {
    auto frame = std::make_unique<Frame>();
    const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(executable_.arena_bytes_, 1));
    frame->arena.reset(std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
    if (!frame->arena)
      fail<KernelError>("network", "no memory for {} bytes between the steps", executable_.arena_bytes_);
    for (const Step& step : executable_.steps_) {
      for (const Argument& argument : step.arguments)
        frame->pointers.push_back(argument.kind == Argument::Kind::Arena
                                      ? static_cast<std::byte*>(frame->arena.get()) + argument.at
                                      : argument.address);
      for (const std::int64_t value : step.values)
        frame->pointers.push_back(reinterpret_cast<void*>(static_cast<std::intptr_t>(value)));
    }
    return frame;
  }

  const Executable& executable_;
  std::unique_ptr<Frame> frame_;
};

Executable::Executable(std::vector<Step> steps, std::int64_t arena_bytes, std::size_t externals, Host host)
    : steps_(std::move(steps)), arena_bytes_(arena_bytes), externals_(externals), host_(std::move(host)) {
  if (arena_bytes_ < 0) fail<ShapeError>("network", "an arena of {} bytes", arena_bytes_);
  std::size_t count = 0;
  for (std::size_t number = 0; number < steps_.size(); ++number) {
    Step& step = steps_[number];
    begins_.push_back(count);
    if (step.kernel) {
      step.kernel->require_runs_here();
      if (step.kernel->argument_count() != step.arguments.size())
        fail<ShapeError>("network", "step {} has {} arguments; its kernel takes {}", number,
                         step.arguments.size(), step.kernel->argument_count());
    } else if (step.native) {
      if (step.native->argument_bytes.size() != step.arguments.size())
        fail<ShapeError>("network", "step {} has {} arguments; its kernel takes {}", number,
                         step.arguments.size(), step.native->argument_bytes.size());
      require_values(number, step);
    } else if (!step.builtin && !host_) {
      fail<ShapeError>("network", "step {} is the host's, and there is none", number);
    }
    for (const Argument& argument : step.arguments) {
      const bool outside =
          argument.kind == Argument::Kind::External
              ? argument.at < 0 || static_cast<std::size_t>(argument.at) >= externals_
              : argument.kind == Argument::Kind::Arena && (argument.at < 0 || argument.at > arena_bytes_);
      if (outside)
        fail<ShapeError>("network", "an argument of step {} lies at {}: outside of {} bytes and {} buffers",
                         number, argument.at, arena_bytes_, externals_);
      if (argument.kind == Argument::Kind::External)
        patched_.emplace_back(count, static_cast<std::size_t>(argument.at));
      ++count;
    }
    count += step.values.size();
  }
  free_.reserve(64);  // frames that are kept; more than run at once in most programs
}

Executable::~Executable() = default;

void Executable::run_step(std::size_t number, const Frame& frame, int threads) const {
  const Step& step = steps_[number];
  void* const* pointers = frame.pointers.data() + begins_[number];
  threads = std::clamp(threads, 1, std::max(1, step.threads));
  if (step.kernel) {
    step.kernel->call_unchecked(pointers, threads);
  } else if (step.native) {
    jit::run_kernel(step.native->function, pointers, step.native->shared_bytes, step.native->private_bytes,
                    threads);
  } else if (step.builtin) {
    forget_upper_halves();
    step.builtin(pointers);
  } else {
    host_(number, {pointers, step.arguments.size()});
  }
}

void Executable::run(std::span<void* const> externals, int threads) const {
  SYNO_ASSERT(externals.size() == externals_, "as many buffers as there are inputs and outputs");
  const Taken taken(*this, externals);
  for (std::size_t step = 0; step < steps_.size(); ++step) run_step(step, taken.frame(), threads);
}

std::vector<double> Executable::profile(std::span<void* const> externals, int threads, int turns) const {
  SYNO_ASSERT(externals.size() == externals_, "as many buffers as there are inputs and outputs");
  using Clock = std::chrono::steady_clock;
  const Taken taken(*this, externals);
  std::vector<std::vector<double>> seconds(steps_.size());
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      const auto begin = Clock::now();
      run_step(step, taken.frame(), threads);
      seconds[step].push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
  std::vector<double> medians;
  for (auto& times : seconds) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    medians.push_back(times.empty() ? 0 : *middle);
  }
  return medians;
}

}  // namespace syno::graph
