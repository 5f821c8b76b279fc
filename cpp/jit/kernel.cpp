#include "jit/kernel.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>

#include "jit/codegen.hpp"
#include "support/build_id.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"
#include "support/fork_gate.hpp"
#include "support/memory.hpp"

namespace syno::jit {

namespace {

/// Machine code shared by all kernels of one key that are alive.
struct Code {
  CompiledObject object;
  std::string registered_key;  ///< empty: not registered
  std::string kept_in;         ///< the object cache that it lies in, written with the registry's lock held
  std::unique_ptr<LoadedCode> loaded;
  ~Code();
};

/// Live code by key: a symbol may exist only once in the linker. Used within sections between two forks.
struct Registry {
  struct Live {
    std::weak_ptr<Code> code;
    Code* made = nullptr;  ///< there as long as the entry is
  };
  std::mutex mutex;
  std::condition_variable removed;
  std::map<std::string, Live> live;
};
Registry& registry() {
  static auto* made = new Registry;
  return *made;
}

Code::~Code() {
  // Whoever waits for the entry below to be removed is in a section, and a fork may be waiting for that.
  const ForkSection section(ForkSection::Kind::Urgent);
  loaded.reset();
  if (registered_key.empty()) return;
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    all.live.erase(registered_key);
  }
  all.removed.notify_all();
}

std::shared_ptr<Code> find_live(std::unique_lock<std::mutex>& lock, const std::string& key) {
  Registry& all = registry();
  for (;;) {
    const auto found = all.live.find(key);
    if (found == all.live.end()) return nullptr;
    if (auto code = found->second.code.lock()) return code;
    all.removed.wait(lock);  // another thread is removing it from the linker just now
  }
}

/// Removes, in a forked child, what threads of the parent were about to remove.
void remove_forgotten() {
  Registry& all = registry();
  for (auto entry = all.live.begin(); entry != all.live.end();) {
    if (!entry->second.code.expired()) {
      ++entry;
      continue;
    }
    entry->second.made->loaded.reset();
    entry = all.live.erase(entry);
  }
}

void make_what_is_made_once() {
  build_id();
  try {
    host_cpu();
  } catch (const Error&) {  // whoever asks for it is told
  }
}

[[maybe_unused]] const bool made_before_forks =
    add_fork_hooks({.before = make_what_is_made_once, .in_child = remove_forgotten});

bool same_strides(const nest::Buffer& buffer, const std::vector<std::int64_t>& strides) {
  for (std::size_t d = 0; d < strides.size(); ++d)
    if (buffer.extents[d] > 1 && strides[d] != buffer.strides[d]) return false;
  return true;
}

struct Extent {
  std::intptr_t low = 0, high = 0;  ///< bytes touched lie in [low, high)
  std::int64_t step = 0;            ///< every element is at low + a multiple of it (bytes); 0: one element
  std::int64_t size = 0;
};

Extent extent_of(const View& view, std::int64_t size) {
  Extent made;
  made.low = made.high = reinterpret_cast<std::intptr_t>(view.data);
  made.size = size;
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    if (view.shape[d] == 0) return {0, 0, 0, size};
    const std::int64_t reach = (view.shape[d] - 1) * view.strides[d] * size;
    (reach < 0 ? made.low : made.high) += reach;
    if (view.shape[d] > 1) made.step = std::gcd(made.step, view.strides[d] * size);
  }
  made.high += size;
  return made;
}

bool may_overlap(const Extent& a, const Extent& b) {
  if (a.low >= b.high || b.low >= a.high) return false;
  const std::int64_t step = std::gcd(a.step, b.step);
  if (step == 0) return true;
  // Interleaved views, such as the even and the odd elements of one array, share no element.
  std::int64_t apart = (b.low - a.low) % step;
  if (apart < 0) apart += step;
  return !(apart >= a.size && step - apart >= b.size);
}

void check(const nest::LoopNest& nest, const std::vector<nest::BufferId>& arguments,
           std::span<const View> views) {
  const std::string where = "kernel " + nest.name;
  if (!nest.parameters.empty())
    fail<ShapeError>(where, "it has {} sizes that a call brings along; call what at() gives for them",
                     nest.parameters.size());
  if (views.size() != arguments.size())
    fail<ShapeError>(where, "{} arrays for {} arguments; pass the inputs, then the outputs", views.size(),
                     arguments.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    const nest::Buffer& buffer = nest.buffer(arguments[i]);
    const View& view = views[i];
    if (view.shape != buffer.extents || view.strides.size() != view.shape.size())
      fail<ShapeError>(where, "`{}` has shape [{}]; the kernel was made for [{}]", buffer.name,
                       fmt::join(view.shape, ", "), fmt::join(buffer.extents, ", "));
    const bool empty = std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end();
    if (view.data == nullptr && !empty) fail<ShapeError>(where, "`{}` has no memory", buffer.name);
  }
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < views.size(); ++i)
    extents.push_back(
        extent_of(views[i], static_cast<std::int64_t>(nest::byte_size(nest.buffer(arguments[i]).dtype))));
  for (std::size_t i = 0; i < views.size(); ++i) {
    const nest::Buffer& buffer = nest.buffer(arguments[i]);
    if (buffer.kind != nest::BufferKind::Output) continue;
    // An element of the output that two indices reach would be written twice.
    if (nest::strides_overlap(views[i].shape, views[i].strides))
      fail<ShapeError>(where,
                       "output `{}` with strides [{}] reaches an element twice; pass an array of its own",
                       buffer.name, fmt::join(views[i].strides, ", "));
    for (std::size_t j = 0; j < views.size(); ++j)
      if (j != i && may_overlap(extents[i], extents[j]))
        fail<ShapeError>(where,
                         "output `{}` shares memory with `{}`, which would change while it is read; pass "
                         "another array",
                         buffer.name, nest.buffer(arguments[j]).name);
  }
}

}  // namespace

struct Kernel::State {
  nest::LoopNest nest;
  std::vector<nest::BufferId> arguments;
  Cpu cpu;
  CompileOptions options;
  std::string key;
  std::shared_ptr<Code> code;
  CompileReport report;
  bool viewed = false;                            ///< its nest has other shapes than its code
  std::vector<std::int64_t> sizes;                ///< what the code's parameters are in calls of this kernel
  std::shared_ptr<const nest::LoopNest> general;  ///< with parameters: what the code was made of
  mutable std::mutex mutex;
  mutable std::map<std::vector<std::int64_t>, std::shared_ptr<Kernel>> variants;
};

Kernel::Kernel(std::unique_ptr<State> state) : state_(std::move(state)) {}
Kernel::~Kernel() = default;

std::shared_ptr<Kernel> compile(const nest::LoopNest& nest, const CompileOptions& options) {
  const ForkSection section;
  nest::verify(nest);
  auto state = std::make_unique<Kernel::State>();
  state->nest = nest;
  state->arguments = nest::arguments(nest);
  if (!nest.parameters.empty()) state->general = std::make_shared<const nest::LoopNest>(nest);
  state->cpu = options.cpu != nullptr ? *options.cpu : host_cpu();
  state->options = options;
  state->options.cpu = nullptr;
  const Cpu& cpu = state->cpu;
  const std::string key_text =
      fmt::format("syno {}\nLLVM {}\n{}\n{}\n{}\n{} bits\n{}", build_id(), llvm_version(), cpu.triple,
                  cpu.name, cpu.features, cpu.target.vector_bits, nest::to_text(nest));
  state->key = to_hex(hash_text(key_text));
  std::string symbol = fmt::format("{}_{}", nest.name, state->key.substr(0, 16));

  const auto link = [&](CompiledObject object, bool registers) {
    auto made = std::make_shared<Code>();
    made->object = std::move(object);
    const auto start = std::chrono::steady_clock::now();
    if (cpu.here) made->loaded = std::make_unique<LoadedCode>(made->object);
    state->report.link_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (registers) {
      made->registered_key = state->key;
      registry().live[state->key] = {made, made.get()};
    }
    return made;
  };
  if (options.fresh) {
    static std::atomic<std::uint64_t> serial{0};
    symbol += fmt::format("_{}", serial++);
    state->code = link(compile_object(nest, cpu, symbol, state->report), false);
  } else {
    std::unique_lock lock(registry().mutex);
    state->code = find_live(lock, state->key);
    if (state->code) {
      state->report.from_cache = true;
      // Compiled for nobody's cache, or for another one, when several schedules were compared.
      if (!options.cache_directory.empty() && state->code->kept_in != options.cache_directory) {
        state->code->kept_in = options.cache_directory;
        lock.unlock();
        const ObjectCache cache(options.cache_directory);
        if (!cache.find(key_text)) cache.put(key_text, state->code->object);
      }
    } else {
      lock.unlock();
      std::optional<CompiledObject> object;
      if (!options.cache_directory.empty()) object = ObjectCache(options.cache_directory).find(key_text);
      state->report.from_cache = object.has_value() && object->symbol == symbol;
      if (!state->report.from_cache) {
        object = compile_object(nest, cpu, symbol, state->report);
        object->digest = digest_of(key_text, *object);
        if (!options.cache_directory.empty()) ObjectCache(options.cache_directory).put(key_text, *object);
      }
      lock.lock();
      state->code = find_live(lock, state->key);  // another thread may have been faster
      if (!state->code) {
        state->code = link(std::move(*object), true);
        state->code->kept_in = options.cache_directory;
      }
    }
  }
  // Refused here and not in a call, which would have to give up half way.
  const CompiledObject& object = state->code->object;
  require_memory("kernel " + nest.name, "its intermediate results",
                 checked_add(object.shared_bytes, object.private_bytes), 1);
  state->report.code_bytes = state->code->object.code_bytes;
  state->report.spills = state->code->object.spills;
  state->report.hot_spills = state->code->object.hot_spills;
  return std::shared_ptr<Kernel>(new Kernel(std::move(state)));
}

void Kernel::require_runs_here() const {
  if (!state_->cpu.here)
    fail<KernelError>("kernel " + state_->nest.name,
                      "it is machine code for {} ({}), which this machine cannot run", state_->cpu.triple,
                      state_->cpu.name);
}

void Kernel::call_unchecked(void* const* pointers, int threads) const {
  SYNO_ASSERT(state_->code->loaded, "callers without checks hold kernels for this machine");
  const CompiledObject& object = state_->code->object;
  if (!state_->sizes.empty()) {
    const std::size_t count = state_->arguments.size(), all = count + state_->sizes.size();
    std::array<void*, 32> few;
    std::vector<void*> many;
    void** extended = few.data();
    if (all > few.size()) {
      many.resize(all);
      extended = many.data();
    }
    std::copy(pointers, pointers + count, extended);
    for (std::size_t i = count; i < all; ++i)
      extended[i] = reinterpret_cast<void*>(static_cast<std::intptr_t>(state_->sizes[i - count]));
    run_kernel(state_->code->loaded->function(), extended, object.shared_bytes, object.private_bytes,
               threads);
    return;
  }
  run_kernel(state_->code->loaded->function(), pointers, object.shared_bytes, object.private_bytes, threads);
}

void Kernel::call(std::span<const View> views, int threads) const {
  require_runs_here();
  check(state_->nest, state_->arguments, views);
  for (std::size_t i = 0; i < views.size(); ++i) {
    const nest::Buffer& buffer = state_->nest.buffer(state_->arguments[i]);
    if (!same_strides(buffer, views[i].strides))
      fail<ShapeError>("kernel " + state_->nest.name,
                       "`{}` has strides [{}]; the kernel was made for [{}]: use variant_for()", buffer.name,
                       fmt::join(views[i].strides, ", "), fmt::join(buffer.strides, ", "));
  }
  const CompiledObject& object = state_->code->object;
  const std::int64_t workspace =
      checked_add(object.shared_bytes, checked_multiply(threads, object.private_bytes));
  if (workspace > std::int64_t{1} << 26)
    require_memory("kernel " + state_->nest.name, fmt::format("intermediate results on {} threads", threads),
                   workspace, 1);
  std::array<void*, 32> few;
  std::vector<void*> many;
  void** pointers = few.data();
  if (views.size() > few.size()) {
    many.resize(views.size());
    pointers = many.data();
  }
  for (std::size_t i = 0; i < views.size(); ++i) pointers[i] = views[i].data;
  call_unchecked(pointers, threads);
}

const Kernel& Kernel::variant_for(std::span<const View> views) const {
  check(state_->nest, state_->arguments, views);
  bool same = true;
  for (std::size_t i = 0; i < views.size() && same; ++i)
    same = same_strides(state_->nest.buffer(state_->arguments[i]), views[i].strides);
  if (same) return *this;
  if (state_->viewed)
    fail<ShapeError>(
        "kernel",
        "arrays of other strides than row-major ones do not fit code that sees them in another shape");
  const ForkSection section;
  std::vector<std::int64_t> key;
  for (const View& view : views) key.insert(key.end(), view.strides.begin(), view.strides.end());
  {
    const std::lock_guard lock(state_->mutex);
    if (const auto found = state_->variants.find(key); found != state_->variants.end()) return *found->second;
  }
  nest::LoopNest nest = state_->nest;
  for (std::size_t i = 0; i < views.size(); ++i) {
    nest::Buffer& buffer = nest.buffers[static_cast<std::uint32_t>(state_->arguments[i])];
    for (std::size_t d = 0; d < buffer.extents.size(); ++d)
      if (buffer.extents[d] > 1) buffer.strides[d] = views[i].strides[d];
  }
  CompileOptions options = state_->options;
  options.cpu = &state_->cpu;
  options.fresh = false;
  auto made = compile(nest, options);
  const std::lock_guard lock(state_->mutex);
  return *state_->variants.try_emplace(key, std::move(made)).first->second;
}

std::unique_ptr<Kernel::State> Kernel::same_code(nest::LoopNest nest) const {
  auto state = std::make_unique<Kernel::State>();
  state->nest = std::move(nest);
  state->arguments = state_->arguments;
  state->cpu = state_->cpu;
  state->options = state_->options;
  state->key = state_->key;
  state->code = state_->code;
  state->report = state_->report;
  state->sizes = state_->sizes;
  state->general = state_->general;
  return state;
}

std::shared_ptr<Kernel> Kernel::at(const std::vector<std::int64_t>& parameters) const {
  auto state = same_code(nest::specialised(state_->nest, parameters));
  state->sizes = parameters;
  return std::shared_ptr<Kernel>(new Kernel(std::move(state)));
}

std::shared_ptr<Kernel> Kernel::viewed(const std::vector<std::vector<std::int64_t>>& shapes) const {
  if (shapes.size() != state_->arguments.size())
    fail<ShapeError>("kernel", "{} shapes for {} arguments", shapes.size(), state_->arguments.size());
  auto state = same_code(state_->nest);
  state->viewed = true;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    nest::Buffer& buffer = state->nest.buffers[static_cast<std::uint32_t>(state_->arguments[i])];
    std::int64_t own = 1, other = 1;
    for (const std::int64_t extent : buffer.extents) own = checked_multiply(own, extent);
    for (const std::int64_t extent : shapes[i]) other = checked_multiply(other, extent);
    if (own != other)
      fail<ShapeError>("kernel", "`{}` of shape [{}] cannot be viewed as [{}]", buffer.name,
                       fmt::join(buffer.extents, ", "), fmt::join(shapes[i], ", "));
    buffer.extents = shapes[i];
    buffer.strides = nest::row_major_strides(shapes[i]);
  }
  return std::shared_ptr<Kernel>(new Kernel(std::move(state)));
}

const nest::LoopNest& Kernel::nest() const { return state_->nest; }
std::size_t Kernel::argument_count() const { return state_->arguments.size(); }
const Cpu& Kernel::cpu() const { return state_->cpu; }
std::string Kernel::symbol() const { return state_->code->object.symbol; }
std::pair<std::int64_t, std::int64_t> Kernel::workspace_bytes() const {
  return {state_->code->object.shared_bytes, state_->code->object.private_bytes};
}
const CompileReport& Kernel::report() const { return state_->report; }
std::string Kernel::key() const { return state_->key; }
std::string Kernel::digest() const { return state_->code->object.digest; }
std::string Kernel::object() const { return state_->code->object.bytes; }
std::string Kernel::llvm() const {
  return ir_text(state_->general ? *state_->general : state_->nest, state_->cpu, state_->code->object.symbol);
}
std::string Kernel::assembly() const {
  return assembly_text(state_->general ? *state_->general : state_->nest, state_->cpu,
                       state_->code->object.symbol);
}

}  // namespace syno::jit
