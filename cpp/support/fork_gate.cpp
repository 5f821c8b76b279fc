#include "support/fork_gate.hpp"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace syno {

namespace {

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int sections = 0;  ///< threads that are in one
  int forks = 0;     ///< threads that wait to fork
};

/// Never destroyed: threads may outlive main().
union Kept {
  Kept() : gate() {}
  ~Kept() {}
  Gate gate;
};
Kept kept;

thread_local int depth = 0;
thread_local std::vector<std::function<void()>> waiting;

std::vector<ForkHooks>& hooks() {
  static auto* made = new std::vector<ForkHooks>;  // while the library is loaded, by one thread
  return *made;
}

void before_fork() {
  for (const ForkHooks& each : hooks())
    if (each.before != nullptr) each.before();
  Gate& gate = kept.gate;
  std::unique_lock lock(gate.mutex);
  ++gate.forks;
  gate.changed.wait(lock, [&] { return gate.sections == (depth > 0 ? 1 : 0); });
  --gate.forks;
  lock.release();  // held until the fork is done
}

void after_fork_in_parent() {
  kept.gate.mutex.unlock();
  kept.gate.changed.notify_all();
}

void after_fork_in_child() {
  // What the parent's other threads waited on is not this process's.
  Gate* gate = new (&kept.gate) Gate;
  gate->sections = depth > 0 ? 1 : 0;
  for (const ForkHooks& each : hooks())
    if (each.in_child != nullptr) each.in_child();
}

[[maybe_unused]] const bool installed =
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;

}  // namespace

namespace {

void enter(ForkSection::Kind kind) {
  Gate& gate = kept.gate;
  std::unique_lock lock(gate.mutex);
  if (kind == ForkSection::Kind::Usual) gate.changed.wait(lock, [&] { return gate.forks == 0; });
  ++gate.sections;
}

void leave() {
  Gate& gate = kept.gate;
  {
    const std::lock_guard lock(gate.mutex);
    --gate.sections;
  }
  gate.changed.notify_all();
}

}  // namespace

ForkSection::ForkSection(Kind kind) {
  if (depth++ == 0) enter(kind);
}

ForkSection::~ForkSection() {
  if (--depth > 0) return;
  leave();
  for (const auto& act : std::exchange(waiting, {})) outside_fork_sections(act);
}

OutsideForkSections::OutsideForkSections() : depth_(std::exchange(depth, 0)) {
  if (depth_ > 0) leave();
}

OutsideForkSections::~OutsideForkSections() {
  if (depth_ > 0) enter(ForkSection::Kind::Usual);
  depth = depth_;
}

void outside_fork_sections(std::function<void()> act) {
  if (depth > 0) return waiting.push_back(std::move(act));
  try {
    act();
  } catch (...) {  // the work it belongs to is done
  }
}

bool add_fork_hooks(ForkHooks made) {
  hooks().push_back(made);
  return true;
}

}  // namespace syno
