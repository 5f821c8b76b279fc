// bindings/unlocked.hpp — work that leaves the interpreter to other threads.
#pragma once

#include <pybind11/pybind11.h>

namespace syno::bindings {

/// Runs C++ work without the interpreter lock; exceptions pass through.
template <class Work>
auto unlocked(Work&& work) {
  const pybind11::gil_scoped_release release;
  return work();
}

/// Throws what an interruption by Ctrl-C raises; asked by work that runs unlocked.
inline void check_signals() {
  const pybind11::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

}  // namespace syno::bindings
