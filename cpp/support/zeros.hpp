// support/zeros.hpp — arrays of zeros of which only the pages that are written to are there: few elements of
// many.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace syno {

struct FreeZeros {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using Zeros = std::unique_ptr<T[], FreeZeros>;

/// std::bad_alloc where there are no addresses for so many.
template <class T>
Zeros<T> zeros(std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  void* memory = std::calloc(count, sizeof(T));
  if (memory == nullptr) throw std::bad_alloc();
  return Zeros<T>(static_cast<T*>(memory));
}

}  // namespace syno
