// support/error.hpp — typed errors for a caller's mistakes: where, what with the values, what to do.
// What is expected during a search (an illegal step, a failed build) is a value, never an exception.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace syno {

/// Base of every error a caller can cause. `what()` reads `[where] message`, followed by one
/// `  while ...` line for each context added on the way up.
class Error : public std::runtime_error {
 public:
  Error(std::string_view where, std::string_view message)
      : std::runtime_error(fmt::format("[{}] {}", where, message)) {}
};

#define SYNO_ERROR(Name)            \
  class Name final : public Error { \
   public:                          \
    using Error::Error;             \
  }
SYNO_ERROR(ShapeError);     ///< sizes or index ranges do not fit together
SYNO_ERROR(ParseError);     ///< a text form is not well formed
SYNO_ERROR(VerifyError);    ///< a program or graph breaks one of its invariants
SYNO_ERROR(SpecError);      ///< a specification contradicts itself
SYNO_ERROR(ScheduleError);  ///< a schedule does not apply to its program
SYNO_ERROR(KernelError);    ///< a kernel cannot be built, or computes the wrong values
SYNO_ERROR(FormatError);    ///< a file is corrupt, of another kind, or of a newer version
SYNO_ERROR(UnknownName);    ///< a name that is not one of the valid ones
#undef SYNO_ERROR

/// Throws `E` with a formatted message.
template <class E, class... Args>
[[noreturn]] void fail(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
  throw E(where, fmt::format(format, std::forward<Args>(args)...));
}

/// The sentence for an unknown name: lists the valid ones and the nearest of them.
std::string unknown_name(std::string_view kind, std::string_view name, const std::vector<std::string>& valid);

/// A broken invariant: a defect of syno, not of the caller. Aborts with the text.
[[noreturn]] void broken_invariant(const char* file, int line, const char* condition, const char* what);

}  // namespace syno

#define SYNO_ASSERT(condition, what) \
  ((condition) ? void(0) : ::syno::broken_invariant(__FILE__, __LINE__, #condition, what))
