#include "tune/measure.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "jit/check_data.hpp"
#include "jit/kernel.hpp"
#include "support/clock.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/memory.hpp"
#include "support/random.hpp"
#include "support/thread_pool.hpp"

namespace syno::tune {

namespace {

using Clock = std::chrono::steady_clock;
using jit::Kernel;

std::int64_t bytes_of(const nest::Buffer& buffer) {
  std::int64_t count = static_cast<std::int64_t>(nest::byte_size(buffer.dtype));
  for (const auto extent : buffer.extents)
    if (__builtin_mul_overflow(count, extent, &count)) return INT64_MAX;
  return count;
}

/// Memory a kernel needs: arguments and workspace.
std::int64_t memory_of(const Kernel& kernel, int threads) {
  std::int64_t total = 0;
  const auto add = [&](std::int64_t bytes) {
    if (__builtin_add_overflow(total, bytes, &total)) total = INT64_MAX;
  };
  for (const auto id : nest::arguments(kernel.nest())) add(bytes_of(kernel.nest().buffer(id)));
  const auto [shared, each] = kernel.workspace_bytes();
  add(shared);
  for (int t = 0; t < threads; ++t) add(each);
  return total;
}

/// Held by one process at a time of all that name the same file: what is timed has the machine to itself. Who
/// waits too long goes on without, and says so. The file may lie where everybody writes: it is never followed
/// as a link, never written, and may be anybody's.
class MachineLock {
 public:
  MachineLock(const std::string& path, double wait_s) {
    if (path.empty()) return;
    constexpr int kHow = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    file_ = ::open(path.c_str(), kHow);
    if (file_ < 0 && errno == ENOENT) {
      file_ = ::open(path.c_str(), kHow | O_CREAT | O_EXCL, 0644);
      if (file_ >= 0)
        ::fchmod(file_, 0644);  // whatever this process's mask: the others lock it, too
      else if (errno == EEXIST)
        file_ = ::open(path.c_str(), kHow);
    }
    struct stat found{};
    if (file_ < 0 || ::fstat(file_, &found) != 0 || !S_ISREG(found.st_mode)) {
      // Without the file measurements may be disturbed, not wrong.
      note_ = fmt::format("{} cannot be locked: another process may have been measuring", path);
      return;
    }
    const auto start = Clock::now();
    while (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK || seconds_since(start) > wait_s) {
        note_ = "another process was measuring";
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  ~MachineLock() {
    if (file_ >= 0) ::close(file_);
  }
  MachineLock(const MachineLock&) = delete;
  MachineLock& operator=(const MachineLock&) = delete;

  const std::string& note() const { return note_; }  ///< empty: the machine was this process's

 private:
  int file_ = -1;
  std::string note_;
};

/// Random arguments of a kernel, page by page its own.
class Arguments {
 public:
  explicit Arguments(const Kernel& kernel) {
    Random random(7);
    for (const auto id : nest::arguments(kernel.nest())) {
      const nest::Buffer& buffer = kernel.nest().buffer(id);
      const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(bytes_of(buffer), 64));
      memory_.emplace_back(static_cast<char*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), &std::free);
      char* at = memory_.back().get();
      if (at == nullptr) throw std::bad_alloc();
      if (buffer.dtype == nest::Dtype::F32)
        for (std::size_t i = 0; i + 4 <= bytes; i += 4) {
          const auto value = static_cast<float>(random.unit() - 0.5);
          std::memcpy(at + i, &value, 4);
        }
      else if (buffer.dtype == nest::Dtype::F64)
        for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
          const double value = random.unit() - 0.5;
          std::memcpy(at + i, &value, 8);
        }
      else
        std::memset(at, 0x3c, bytes);  // bfloat16: about 0.01
      pointers_.push_back(at);
    }
  }
  void* const* pointers() const { return pointers_.data(); }

 private:
  std::vector<std::unique_ptr<char, decltype(&std::free)>> memory_;
  std::vector<void*> pointers_;
};

/// What every candidate is checked and timed on: filled once, read by the child processes.
class Shared {
 public:
  explicit Shared(const program::Program& concrete) : concrete_(concrete) {
    double elements = 0;
    for (const program::TensorId id : concrete.inputs()) {
      double count = 1;
      for (const std::int64_t extent : program::shape_of(concrete, id)) count *= static_cast<double>(extent);
      elements += count;
    }
    // Where so much is a good part of the memory, it is a child's, which ends alone if there is too little.
    constexpr double kBytes = 2 * sizeof(float) + sizeof(double), kMost = 0.25;
    fits_ = elements * kBytes < kMost * static_cast<double>(available_memory());
  }

  /// Before a child is forked off for these kernels.
  void prepare(const Kernel* prepack, const Kernel& call, bool verify) {
    if (!fits_) return;
    if (verify) jit::draw_inputs(prepack, call, concrete_, kSeed, drawn_);
    if (prepack == nullptr && !arguments_) arguments_.emplace(call);
  }
  /// In the child.
  jit::Verification verified(const Kernel* prepack, const Kernel& call) {
    return jit::verify(prepack, call, concrete_, kSeed, {}, drawn_);
  }
  /// Null: what is called has others, or they were not shared.
  const Arguments* arguments(const Kernel* prepack) const {
    return prepack == nullptr && arguments_ ? &*arguments_ : nullptr;
  }

 private:
  static constexpr std::uint64_t kSeed = 1;
  const program::Program& concrete_;
  bool fits_ = false;
  jit::DrawnInputs drawn_;
  std::optional<Arguments> arguments_;
};

constexpr std::size_t kFlushBytes = std::size_t{96} << 20;  // several last-level caches

void flush_caches() {
  static std::vector<char> junk(kFlushBytes);
  for (std::size_t i = 0; i < junk.size(); i += 64) junk[i] = static_cast<char>(junk[i] + 1);
  asm volatile("" ::: "memory");
}

double one_sample(const Kernel& kernel, const Arguments& arguments, int calls,
                  const MeasureOptions& options) {
  if (!options.cold) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) kernel.call_unchecked(arguments.pointers(), options.threads);
    return seconds_since(start) / calls;
  }
  flush_caches();
  const auto start = Clock::now();
  kernel.call_unchecked(arguments.pointers(), options.threads);
  return seconds_since(start);
}

int calls_for(const Kernel& kernel, const Arguments& arguments, const MeasureOptions& options) {
  kernel.call_unchecked(arguments.pointers(), options.threads);
  const auto start = Clock::now();
  kernel.call_unchecked(arguments.pointers(), options.threads);
  const double once = std::max(seconds_since(start), 1e-8);
  return options.cold ? 1 : std::clamp(static_cast<int>(options.sample_s / once), 1, 1'000'000);
}

/// What a child process sends: plain bytes.
struct Message {
  std::uint8_t outcome = 0;
  int calls = 0;
  double samples[64] = {}, others[64] = {};
  int sample_count = 0;
  char reason[512] = {};
};

void pin(const MeasureOptions& options) {
  if (options.threads != 1) return;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int chosen = options.pin;
  if (chosen < 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &allowed)) chosen = cpu;
  if (chosen < 0 || chosen >= CPU_SETSIZE || !CPU_ISSET(chosen, &allowed)) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(chosen, &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

void write_all(int file, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t done = ::write(file, at, size);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    at += done;
    size -= static_cast<std::size_t>(done);
  }
}

/// Runs `work` in a child process and returns what it sent; the outcome says how the child ended.
template <class Work>
Message in_child(const MeasureOptions& options, const Work& work) {
  int ends[2];
  Message message;
  const auto failed = [&](Outcome outcome, const std::string& reason) {
    message = {};
    message.outcome = static_cast<std::uint8_t>(outcome);
    std::snprintf(message.reason, sizeof message.reason, "%s", reason.c_str());
    return message;
  };
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed(Outcome::Crashed, "no pipe to a child process");
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return failed(Outcome::Crashed, "no child process could be started");
  }
  if (child == 0) {
    ::close(ends[0]);
    set_interruption_handler(nullptr);  // the parent's: it may wait for threads that are not here
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT})
      ::signal(signal, SIG_DFL);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    const auto seconds = static_cast<rlim_t>(options.limit_s) * static_cast<rlim_t>(options.threads) + 2;
    const rlimit cpu{seconds, seconds};
    ::setrlimit(RLIMIT_CPU, &cpu);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a child whose parent was killed ends, too
    if (::getppid() != parent) ::_exit(1);
    pin(options);
    Message made;
    try {
      work(made);
    } catch (const std::bad_alloc&) {
      made.outcome = static_cast<std::uint8_t>(Outcome::TooMuchMemory);
      std::snprintf(made.reason, sizeof made.reason, "the system gives no more memory");
    } catch (const ShapeError& error) {  // sizes that ask for more memory than there is
      made.outcome = static_cast<std::uint8_t>(Outcome::TooMuchMemory);
      std::snprintf(made.reason, sizeof made.reason, "%s", error.what());
    } catch (const std::exception& error) {
      made.outcome = static_cast<std::uint8_t>(Outcome::Wrong);
      std::snprintf(made.reason, sizeof made.reason, "%s", error.what());
    }
    write_all(ends[1], &made, sizeof made);
    ::_exit(0);
  }
  ::close(ends[1]);
  // An interrupted wait leaves no child behind.
  struct Child {
    pid_t id;
    int end;
    bool ended = false;
    ~Child() {
      ::close(end);
      if (ended) return;
      ::kill(id, SIGKILL);
      while (::waitpid(id, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  } guard{child, ends[0]};
  std::size_t got = 0;
  const auto deadline = Clock::now() + std::chrono::duration<double>(options.limit_s);
  bool late = false;
  while (got < sizeof message) {
    const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
    pollfd wait{ends[0], POLLIN, 0};
    check_interruption();
    constexpr double kBetweenChecks = 0.1;
    const int ready =
        left > 0 ? ::poll(&wait, 1, static_cast<int>(std::min(left, kBetweenChecks) * 1000) + 1) : 0;
    if (ready == 0 && left > kBetweenChecks) continue;
    if (ready == 0) {
      late = true;
      break;
    }
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t read = ::read(ends[0], reinterpret_cast<char*>(&message) + got, sizeof message - got);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) break;
    got += static_cast<std::size_t>(read);
  }
  if (got < sizeof message) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  guard.ended = true;
  if (late) return failed(Outcome::TimedOut, fmt::format("no result within {} s", options.limit_s));
  if (got < sizeof message)
    return failed(Outcome::Crashed, WIFSIGNALED(status)
                                        ? fmt::format("killed by signal {}", WTERMSIG(status))
                                        : fmt::format("ended with status {}", WEXITSTATUS(status)));
  return message;
}

struct Compiled {
  std::shared_ptr<Kernel> kernel;   ///< what a call runs
  std::shared_ptr<Kernel> prepack;  ///< what runs once before calls, if anything
  Measured measured;
};

Compiled compile_one(const program::Program& concrete, const schedule::Schedule& candidate,
                     const MeasureOptions& options) {
  Compiled made;
  const auto start = Clock::now();
  try {
    jit::CompileOptions how;
    how.cache_directory = options.cache_directory;
    if (auto parts = schedule::apply_prepacked(concrete, candidate)) {
      made.prepack = jit::compile(parts->prepack, how);
      made.kernel = jit::compile(parts->call, how);
    } else {
      made.kernel = jit::compile(schedule::apply(concrete, candidate), how);
    }
    made.measured.spills = made.kernel->report().spills;
    if (const std::int64_t bytes = memory_of(*made.kernel, options.threads); bytes > options.memory_bytes) {
      made.measured.outcome = Outcome::TooMuchMemory;
      made.measured.reason = fmt::format("needs {} bytes; the limit is {}", bytes, options.memory_bytes);
      made.kernel = nullptr;
    }
  } catch (const ShapeError& error) {  // sizes that ask for more memory than there is
    made.measured.outcome = Outcome::TooMuchMemory;
    made.measured.reason = error.what();
  } catch (const Error& error) {
    made.measured.outcome = Outcome::NotApplicable;
    made.measured.reason = error.what();
  } catch (const std::bad_alloc&) {
    made.measured.outcome = Outcome::TooMuchMemory;
    made.measured.reason = "the system gives no more memory";
  }
  made.measured.compile_ms = seconds_since(start) * 1e3;
  return made;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

void check(const MeasureOptions& options) {
  if (options.threads < 1) fail<KernelError>("measure", "threads={} must be at least 1", options.threads);
  if (options.samples < 3 || options.samples > 64)
    fail<KernelError>("measure", "samples={} must be in [3, 64]", options.samples);
  if (!(options.limit_s > 0)) fail<KernelError>("measure", "limit_s={} must be positive", options.limit_s);
}

}  // namespace

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::Ok:
      return "ok";
    case Outcome::NotApplicable:
      return "not applicable";
    case Outcome::Wrong:
      return "wrong";
    case Outcome::Crashed:
      return "crashed";
    case Outcome::TimedOut:
      return "timed out";
    case Outcome::TooMuchMemory:
      return "too much memory";
  }
  return "?";
}

std::vector<Measured> measure(const program::Program& concrete,
                              const std::vector<schedule::Schedule>& candidates,
                              const MeasureOptions& options) {
  check(options);
  std::vector<Compiled> compiled(candidates.size());
  {
    ThreadPool pool(static_cast<std::size_t>(std::max(0, options.compilers)));
    pool.for_each(candidates.size(),
                  [&](std::size_t i) { compiled[i] = compile_one(concrete, candidates[i], options); });
  }
  std::vector<Measured> results;
  Shared shared(concrete);
  const MachineLock lock(options.lock_file, options.lock_wait_s);
  for (Compiled& each : compiled) {
    Measured& measured = each.measured;
    if (each.kernel) {
      const Kernel& kernel = *each.kernel;
      shared.prepare(each.prepack.get(), kernel, options.verify);
      const Message message = in_child(options, [&](Message& made) {
        if (options.verify) {
          const jit::Verification check = shared.verified(each.prepack.get(), kernel);
          if (!check.passed) {
            made.outcome = static_cast<std::uint8_t>(Outcome::Wrong);
            std::snprintf(made.reason, sizeof made.reason, "error %.2e over the limit %.0e; %s",
                          check.max_rel_err, check.limit, check.detail.c_str());
            return;
          }
        }
        std::optional<Arguments> own;
        const Arguments* arguments = shared.arguments(each.prepack.get());
        if (arguments == nullptr) arguments = &own.emplace(kernel);
        made.calls = calls_for(kernel, *arguments, options);
        for (int s = 0; s < options.samples; ++s)
          made.samples[made.sample_count++] = one_sample(kernel, *arguments, made.calls, options);
      });
      measured.outcome = static_cast<Outcome>(message.outcome);
      measured.reason = message.reason;
      if (measured.outcome == Outcome::Ok) {
        const std::vector<double> samples(message.samples, message.samples + message.sample_count);
        measured.median_s = quantile(samples, 0.5);
        measured.q1_s = quantile(samples, 0.25);
        measured.q3_s = quantile(samples, 0.75);
        measured.samples = message.sample_count;
        measured.calls = message.calls;
      }
      each.kernel = nullptr;
      each.prepack = nullptr;
    }
    measured.note = lock.note();
    results.push_back(std::move(measured));
  }
  return results;
}

double compare(const program::Program& concrete, const schedule::Schedule& a, const schedule::Schedule& b,
               const MeasureOptions& options) {
  check(options);
  const Compiled first = compile_one(concrete, a, options), second = compile_one(concrete, b, options);
  if (!first.kernel || !second.kernel) return 0;
  const MachineLock lock(options.lock_file, options.lock_wait_s);
  const Message message = in_child(options, [&](Message& made) {
    // What is packed before calls differs: each kernel has arguments of its own, then.
    const Arguments arguments(*first.kernel);
    const std::optional<Arguments> own = first.prepack || second.prepack
                                             ? std::optional<Arguments>(std::in_place, *second.kernel)
                                             : std::nullopt;
    const Arguments& others = own ? *own : arguments;
    const int calls_a = calls_for(*first.kernel, arguments, options),
              calls_b = calls_for(*second.kernel, others, options);
    const auto time = [&](const Compiled& of, int calls) {
      return one_sample(*of.kernel, &of == &first ? arguments : others, calls, options);
    };
    for (int s = 0; s < options.samples; ++s) {
      // Either goes first in turn: what disturbs in a rhythm of its own disturbs both.
      double of_a = 0, of_b = 0;
      if (s % 2 == 0) of_a = time(first, calls_a);
      of_b = time(second, calls_b);
      if (s % 2 == 1) of_a = time(first, calls_a);
      made.samples[made.sample_count++] = of_a;
      made.others[s] = of_b;
    }
  });
  if (static_cast<Outcome>(message.outcome) != Outcome::Ok || message.sample_count == 0) return 0;
  // Disturbances only ever add, and may hit most samples: the fast quarter of each is what it takes.
  const auto fast = [&](const double* samples) {
    return quantile(std::vector<double>(samples, samples + message.sample_count), 0.25);
  };
  return fast(message.samples) / fast(message.others);
}

}  // namespace syno::tune
