// jit/native_library.hpp — kernels that were compiled and linked before: machine code from memory, without
// LLVM.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jit/runtime.hpp"

namespace syno::jit {

/// A function of a library, and what its caller must know.
struct NativeKernel {
  KernelFunction* function = nullptr;
  std::int64_t shared_bytes = 0, private_bytes = 0;  ///< workspace, as of `Kernel`
  std::vector<std::int64_t> argument_bytes;          ///< inputs, then outputs; with parameters the most
  /// Least and greatest value of each size that calls bring along: they follow the arguments.
  std::vector<std::pair<std::int64_t, std::int64_t>> parameters;
};

/// A shared object (ELF) for this machine that was linked of kernels' objects and of one text, the symbol
/// `syno_interface`: {"version": 1, "kernels": {symbol: {"shared": 0, "private": 0, "arguments": [bytes]}}};
/// in version 2 a kernel's row may also have "parameters": [[least, greatest]].
/// It is run as it is: whoever loads one has made sure that it is what was written, for a CPU like this one.
class NativeLibrary {
 public:
  /// Copies the bytes to memory that no file shows. FormatError where they are no such object, KernelError
  /// where the system loads none from memory.
  explicit NativeLibrary(std::string_view elf);
  ~NativeLibrary();
  NativeLibrary(const NativeLibrary&) = delete;
  NativeLibrary& operator=(const NativeLibrary&) = delete;

  const std::map<std::string, NativeKernel>& kernels() const { return kernels_; }
  const NativeKernel& kernel(const std::string& symbol) const;  ///< UnknownName

 private:
  void read_interface(std::string_view text);
  int file_ = -1;
  void* handle_ = nullptr;
  std::map<std::string, NativeKernel> kernels_;
};

}  // namespace syno::jit
