// support/inline_vector.hpp — a vector whose first few elements need no memory of their own.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

namespace syno {

/// As std::vector of small values, most often not more than `N` of them: those lie in the object itself.
template <class T, std::size_t N>
class InlineVector {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  InlineVector() = default;
  InlineVector(std::size_t count, const T& value) { assign(count, value); }
  InlineVector(std::initializer_list<T> values) {
    reserve(values.size());
    for (const T& value : values) push_back(value);
  }
  InlineVector(const InlineVector&) = default;
  InlineVector& operator=(const InlineVector&) = default;
  InlineVector(InlineVector&& other) noexcept { *this = std::move(other); }
  InlineVector& operator=(InlineVector&& other) noexcept {
    near_ = std::move(other.near_);
    far_ = std::exchange(other.far_, {});
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~InlineVector() = default;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return far_.empty() ? near_.data() : far_.data(); }
  T* end() { return begin() + size_; }
  const T* begin() const { return far_.empty() ? near_.data() : far_.data(); }
  const T* end() const { return begin() + size_; }
  T& operator[](std::size_t i) { return begin()[i]; }
  const T& operator[](std::size_t i) const { return begin()[i]; }
  T& front() { return *begin(); }
  const T& front() const { return *begin(); }
  T& back() { return end()[-1]; }
  const T& back() const { return end()[-1]; }

  void clear() { size_ = 0; }
  void assign(std::size_t count, const T& value) {
    clear();
    reserve(count);
    for (std::size_t i = 0; i < count; ++i) push_back(value);
  }
  void reserve(std::size_t count) {
    if (count <= std::max(N, far_.size())) return;
    std::vector<T> grown(std::max(count, 2 * size_));
    std::copy(begin(), end(), grown.begin());
    far_ = std::move(grown);
  }
  void push_back(T value) {
    reserve(size_ + 1);
    begin()[size_++] = std::move(value);
  }
  template <class... Arguments>
  void emplace_back(Arguments&&... arguments) {
    push_back(T(std::forward<Arguments>(arguments)...));
  }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend auto operator<=>(const InlineVector& a, const InlineVector& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::size_t size_ = 0;
  std::array<T, N> near_{};
  std::vector<T> far_;  ///< all of them once there were more than N; its size is the capacity
};

}  // namespace syno
