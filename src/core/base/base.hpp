// base.hpp: integer names, the one error type, aligned scratch memory, functions by reference.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace crfkit {

using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr u32 kNone = 0xffffffffu;  // in place of a number that is not there

// A fault in what the user gave; its text is shown as it is.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// A growing, 64-byte aligned array of plain numbers. Growing does not keep the contents.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t n) { reserve(n); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() { release(); }

  void reserve(std::size_t n) {
    if (n <= size_) return;
    release();
    data_ = nullptr;
    size_ = 0;
    const std::size_t bytes = (n * sizeof(T) + 63) / 64 * 64;
    data_ = static_cast<T*>(::operator new(bytes, kAlignment));
    size_ = n;
  }
  // Room for n numbers, all of them this one.
  void assign(std::size_t n, T value) {
    reserve(n);
    std::fill_n(data_, n, value);
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  void release() { ::operator delete(data_, kAlignment); }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// A caller's function, by reference: what runs it is compiled once for all callers.
template <class Signature>
class FunctionRef;
template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  FunctionRef() = default;
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& f)  // NOLINT: made of a function where one is asked for
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  Result operator()(Args... args) const { return call_(object_, args...); }
  explicit operator bool() const { return call_ != nullptr; }

 private:
  void* object_ = nullptr;
  Result (*call_)(void*, Args...) = nullptr;
};

}  // namespace crfkit
