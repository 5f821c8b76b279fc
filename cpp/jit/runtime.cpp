#include "jit/runtime.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "support/checked.hpp"
#include "support/error.hpp"
#include "support/fork_gate.hpp"

namespace syno::jit {

namespace {

constexpr int kLargestPool = 256;
constexpr int kSpins = 4000;  // some ten microseconds: parallel loops of one kernel follow each other closely

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Threads that wait for one job at a time. Never destroyed: its threads are detached and may outlive main().
class WorkerPool {
 public:
  /// Runs job(worker) on workers 0 .. count-1, 0 being the caller. False when another caller has the pool.
  bool run(int count, void (*job)(void*, int), void* data) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    count = std::min(count, kLargestPool);
    while (started_ < count - 1) {
      const int worker = started_ + 1;
      try {
        std::thread([this, worker] { work(worker); }).detach();
      } catch (const std::exception&) {
        count = started_ + 1;  // the system gives no more threads: fewer do the same work
        break;
      }
      ++started_;
    }
    job_ = job;
    data_ = data;
    pending_.store(started_, std::memory_order_relaxed);
    wanted_ = count;
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    job(data, 0);
    for (int spin = 0; pending_.load(std::memory_order_acquire) != 0; ++spin) {
      if (spin < kSpins)
        relax();
      else
        std::this_thread::yield();
    }
    return true;
  }

 private:
  void work(int worker) {
    std::uint32_t seen = 0;
    for (;;) {
      std::uint32_t now = generation_.load(std::memory_order_acquire);
      for (int spin = 0; now == seen && spin < kSpins; ++spin) {
        relax();
        now = generation_.load(std::memory_order_acquire);
      }
      if (now == seen) {
        generation_.wait(seen, std::memory_order_acquire);
        continue;
      }
      seen = now;
      if (worker < wanted_) job_(data_, worker);
      pending_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::mutex mutex_;
  int started_ = 0;
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<int> pending_{0};
  void (*job_)(void*, int) = nullptr;
  void* data_ = nullptr;
  int wanted_ = 0;
};

std::atomic<WorkerPool*> pool{nullptr};
std::atomic<decltype(OpenMp::parallel)> openmp_parallel{nullptr};
std::atomic<decltype(OpenMp::thread_number)> openmp_thread_number{nullptr};

void forget_pool() {  // its threads stayed in the parent, and so did those of OpenMP
  pool.store(nullptr);
  openmp_parallel.store(nullptr);
}

[[maybe_unused]] const bool pool_forgotten = add_fork_hooks({.before = nullptr, .in_child = forget_pool});

WorkerPool& the_pool() {
  WorkerPool* found = pool.load();
  if (found == nullptr) {
    auto* made = new WorkerPool;
    if (pool.compare_exchange_strong(found, made)) return *made;
    delete made;
  }
  return *found;
}

/// A job for a team of OpenMP's threads; there may be fewer of them than wanted.
struct Team {
  void (*job)(void*, int);
  void* data;

  static void work(void* team) {
    const auto& own = *static_cast<Team*>(team);
    own.job(own.data, openmp_thread_number.load(std::memory_order_relaxed)());
  }
};

/// False, nothing done, when another caller has the pool.
bool run_job(int threads, void (*job)(void*, int), void* data) {
  if (const auto parallel = openmp_parallel.load(std::memory_order_acquire)) {
    Team team{job, data};
    parallel(Team::work, &team, static_cast<unsigned>(threads), 0);
    return true;
  }
  return the_pool().run(threads, job, data);
}

struct Call {
  int threads;
  char* private_memory;
  std::int64_t private_bytes;
};

/// One parallel loop, its iterations in chunks. Each thread has a run of them and goes through it in order,
/// so that what an iteration leaves near, or has asked for ahead, is there for the next one; who is done
/// takes from the ends of others.
struct ParallelLoop {
  ParallelBody* body;
  void* context;
  std::int64_t count;
  std::int64_t grain;
  const Call* call;
  int workers;
  std::array<std::atomic<std::uint64_t>, kLargestPool>
      runs{};  ///< by worker: first chunk that is left, and end

  static std::uint64_t run_of(std::uint64_t first, std::uint64_t end) { return first << 32 | end; }

  void share_out() {
    const auto chunks = static_cast<std::uint64_t>((count + grain - 1) / grain);
    const auto shares = static_cast<std::uint64_t>(workers);
    for (std::uint64_t w = 0; w < shares; ++w)
      runs[w].store(run_of(chunks * w / shares, chunks * (w + 1) / shares), std::memory_order_relaxed);
  }

  /// The next chunk of a run, or its last one; -1 where nothing is left.
  static std::int64_t taken(std::atomic<std::uint64_t>& run, bool last) {
    std::uint64_t now = run.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t first = now >> 32, end = now & 0xffffffffU;
      if (first >= end) return -1;
      const std::uint64_t left = last ? run_of(first, end - 1) : run_of(first + 1, end);
      if (run.compare_exchange_weak(now, left, std::memory_order_relaxed))
        return static_cast<std::int64_t>(last ? end - 1 : first);
    }
  }

  static void take(void* data, int worker) {
    auto& loop = *static_cast<ParallelLoop*>(data);
    char* memory = loop.call->private_memory + worker * loop.call->private_bytes;
    for (int turn = 0; turn < loop.workers; ++turn) {
      const auto whose = static_cast<std::size_t>((worker + turn) % loop.workers);
      for (;;) {
        const std::int64_t chunk = taken(loop.runs[whose], turn > 0);
        if (chunk < 0) break;
        const std::int64_t begin = chunk * loop.grain;
        loop.body(loop.context, begin, std::min(begin + loop.grain, loop.count), memory);
      }
    }
  }
};

void run_parallel(void* data, ParallelBody* body, void* context, std::int64_t count) {
  constexpr std::int64_t kChunks = 8, kMostChunks = std::int64_t{1} << 31;  // of a thread; of all
  const Call& call = *static_cast<const Call*>(data);
  const auto threads = static_cast<int>(std::min<std::int64_t>(call.threads, count));
  if (threads > 1) {
    const std::int64_t grain = std::max<std::int64_t>({1, count / (kChunks * threads), count / kMostChunks});
    ParallelLoop loop{body, context, count, grain, &call, threads, {}};
    loop.share_out();
    if (run_job(threads, ParallelLoop::take, &loop)) return;
  }
  if (count > 0) body(context, 0, count, call.private_memory);
}

/// Memory for temporaries, kept from call to call.
struct Workspace {
  char* memory = nullptr;
  std::size_t bytes = 0;
  ~Workspace() { std::free(memory); }
  char* get(std::size_t wanted) {
    if (wanted <= bytes) return memory;
    std::free(memory);
    bytes = (wanted + 4095) / 4096 * 4096;
    memory = static_cast<char*>(std::aligned_alloc(4096, bytes));
    if (memory == nullptr) {
      bytes = 0;
      fail<KernelError>("kernel", "there is no memory for {} bytes of intermediate results", wanted);
    }
    std::memset(memory, 0, bytes);  // halves of somebody's pointers are denormal numbers
    return memory;
  }
};

thread_local Workspace workspace;

}  // namespace

void run_kernel(KernelFunction* kernel, void* const* arguments, std::int64_t shared_bytes,
                std::int64_t private_bytes, int threads) {
  threads = std::clamp(threads, 1, kLargestPool);
  char* memory = nullptr;
  if (shared_bytes != 0 || private_bytes != 0)
    memory = workspace.get(
        static_cast<std::size_t>(checked_add(shared_bytes, checked_multiply(threads, private_bytes))));
  if (threads == 1) return kernel(arguments, memory, nullptr, nullptr);
  if (openmp_parallel.load(std::memory_order_acquire) == nullptr)
    the_pool();  // kernels let no exception through
  Call call{threads, memory + shared_bytes, private_bytes};
  kernel(arguments, memory, run_parallel, &call);
}

void warm_workspace(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const volatile char* memory = workspace.memory;
  for (std::size_t end = std::min(bytes, workspace.bytes); end > 0; end -= std::min(end, kLine))
    static_cast<void>(memory[end - 1]);
}

void run_on(const OpenMp& runtime) {
  openmp_thread_number.store(runtime.thread_number);
  openmp_parallel.store(runtime.parallel, std::memory_order_release);
}

}  // namespace syno::jit
