// jit/runtime.hpp — what kernels run on: a pool of threads, and memory for their temporaries.
#pragma once

#include <cstddef>
#include <cstdint>

namespace syno::jit {

/// The plain C interface of a kernel; emitter.hpp says what the arguments are.
using ParallelBody = void(void* context, std::int64_t begin, std::int64_t end, void* private_memory);
using ParallelRunner = void(void* pool, ParallelBody* body, void* context, std::int64_t count);
using KernelFunction = void(void* const* arguments, void* workspace, ParallelRunner* parallel, void* pool);

/// Calls the kernel on up to `threads` threads (the caller is one) with workspace of the calling thread,
/// which is kept for the next call. Thread-safe: while another call has the pool, this one runs in its caller
/// alone. What an iteration computes depends on it alone, so results are the same for any number of threads.
/// Survives fork: the child starts threads of its own when it first needs them.
void run_kernel(KernelFunction* kernel, void* const* arguments, std::int64_t shared_bytes,
                std::int64_t private_bytes, int threads);

/// Reads the first so many bytes of the calling thread's workspace, the last ones first, or what there is of
/// them: they lie in the caches then, as between the kernels of a network.
void warm_workspace(std::size_t bytes);

/// The entry points of an OpenMP runtime (libgomp) that another library in this process computes on.
struct OpenMp {
  void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
  int (*thread_number)() = nullptr;
};
/// From now on kernels run on that runtime's threads instead of a pool of their own: threads of two pools get
/// in each other's way, since each spins for a while where it waits for more work. A forked child, in which
/// such a runtime has no threads, has its own pool again. Two null pointers: the own pool.
void run_on(const OpenMp& runtime);

}  // namespace syno::jit
