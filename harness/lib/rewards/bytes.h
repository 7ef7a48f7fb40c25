#pragma once
// Numbers and lists as bytes, for what ranks of one machine type tell each other: no digit is lost.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep::rewards {

class ByteWriter {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  void put(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(std::string_view text) {
    put(static_cast<int64_t>(text.size()));
    text_.append(text);
  }
  template <class T>
  void put(const std::vector<T>& list) {
    put(static_cast<int64_t>(list.size()));
    for (const T& each : list) put_one(each);
  }
  /// The fields of a struct that lists them: `template <class Self, class Archive> static void fields(Self&, Archive&)`.
  template <class T>
    requires std::is_class_v<T> && requires(T& t, ByteWriter& w) { T::fields(t, w); }
  void put(const T& value) {
    T::fields(value, *this);
  }
  template <class... T>
  void operator()(const T&... values) {
    (put_one(values), ...);
  }
  const std::string& text() const { return text_; }

 private:
  template <class T>
  void put_one(const T& value) {
    if constexpr (std::is_same_v<T, std::string>)
      put(std::string_view(value));
    else
      put(value);
  }
  std::string text_;
};

/// Reads what a ByteWriter wrote. Of a text that is cut short or too long nothing is known: `failed`.
class ByteReader {
 public:
  explicit ByteReader(std::string_view text) : text_(text) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  void get(T& value) {
    if (!has(sizeof value)) return;
    std::memcpy(&value, text_.data() + at_, sizeof value);
    at_ += sizeof value;
  }
  void get(std::string& text) {
    const std::size_t size = length(1);
    text.assign(text_.substr(at_, size));
    at_ += size;
  }
  template <class T>
  void get(std::vector<T>& list) {
    list.assign(length(std::is_arithmetic_v<T> ? sizeof(T) : 1), T{});
    for (T& each : list) get(each);
  }
  template <class T>
    requires std::is_class_v<T> && requires(T& t, ByteReader& r) { T::fields(t, r); }
  void get(T& value) {
    T::fields(value, *this);
  }
  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  bool failed() const { return failed_; }
  /// Was everything read, and nothing missing?
  bool complete() const { return !failed_ && at_ == text_.size(); }

 private:
  bool has(std::size_t bytes) {
    if (text_.size() - at_ < bytes) failed_ = true;
    return !failed_;
  }
  /// Of a list whose elements take at least so many bytes: a length that cannot be is none.
  std::size_t length(std::size_t bytes_each) {
    int64_t count = 0;
    get(count);
    if (count < 0 || static_cast<std::size_t>(count) > (text_.size() - at_) / bytes_each) failed_ = true;
    return failed_ ? 0 : static_cast<std::size_t>(count);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

template <class T>
std::string to_bytes(const T& value) {
  ByteWriter writer;
  writer.put(value);
  return writer.text();
}

/// False if the bytes are no T.
template <class T>
bool from_bytes(std::string_view bytes, T& value) {
  ByteReader reader(bytes);
  reader.get(value);
  return reader.complete();
}

}  // namespace lockstep::rewards
