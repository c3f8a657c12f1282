// objects.hpp: reads sequences of Python objects (items of attributes, rows of strings) into the core's tables.
#pragma once
#include <nanobind/nanobind.h>

#include <cmath>
#include <string>
#include <vector>

#include "text/attribute_cache.hpp"
#include "text/columns.hpp"
#include "text/items.hpp"
#include "text/strings.hpp"
#include "text/unicode.hpp"

namespace crfkit {

namespace nb = nanobind;

// Where we are in the data, for messages.
struct Place {
  i64 sequence = 0, position = 0;
  std::string text() const {
    return "sequence " + std::to_string(sequence) + ", position " + std::to_string(position) + ": ";
  }
};

inline std::string kind_of(nb::handle h) { return nb::cast<std::string>(nb::str(h.type().attr("__name__"))); }

inline std::string_view utf8(nb::handle h, const Place& place, const char* what) {
  if (!PyUnicode_Check(h.ptr())) throw Error(place.text() + what + " must be a str, got " + kind_of(h));
  Py_ssize_t n = 0;
  const char* s = PyUnicode_AsUTF8AndSize(h.ptr(), &n);
  if (s == nullptr) {
    PyErr_Clear();
    throw Error(place.text() + what + " holds a lone surrogate and is not valid text");
  }
  return {s, static_cast<std::size_t>(n)};
}

// Bytes (or a bytearray) as text in UTF-8, which they are taken for, or else for Latin-1; that needs room.
inline std::string_view decoded(nb::handle h, std::string& room) {
  const bool fixed = PyBytes_Check(h.ptr());
  const std::string_view s(fixed ? PyBytes_AsString(h.ptr()) : PyByteArray_AsString(h.ptr()),
                           fixed ? PyBytes_Size(h.ptr()) : PyByteArray_Size(h.ptr()));
  if (invalid_utf8(s) == std::string_view::npos) return s;
  room.clear();
  for (const char c : s) {
    const auto code = static_cast<unsigned char>(c);
    if (code >= 0x80) room += static_cast<char>(0xC0 | code >> 6);
    room += static_cast<char>(code < 0x80 ? code : 0x80 | (code & 0x3F));
  }
  return room;
}

// Attributes of a token given as a dict, or a list, set or other iterable that has a length, in python-crfsuite's
// manner. Strings may be bytes, names also a bytearray. As there, of a mapping that is no dict the keys count.
//   "a" -> a = 1        {"a": 2.5} -> a = 2.5        {"a": "b"} -> a:b = 1
//   {"a": {"b": 2.5}} -> a:b = 2.5                   {"a": ["b", "c"]} -> a:b = 1, a:c = 1
class ItemReader {
 public:
  explicit ItemReader(ItemBuilder& out, AttributeCache* cache = nullptr) : out_(out), cache_(cache) {}

  void read(nb::handle sequences) {
    for (nb::handle sequence : iterate(sequences, "the data")) read_sequence(sequence);
  }

  void read_sequence(nb::handle sequence) {
    place_.position = 0;
    for (nb::handle item : iterate(sequence, "a sequence")) {
      name_.clear();
      add_item(item);
      out_.end_token();
      ++place_.position;
    }
    out_.end_sequence(true);
    ++place_.sequence;
  }

 private:
  nb::object iterate(nb::handle h, const char* what) {
    if (PyUnicode_Check(h.ptr()) || PyBytes_Check(h.ptr()) || PyDict_Check(h.ptr()))
      throw Error(place_.text() + what + " must be a list, got " + kind_of(h));
    PyObject* fast = PySequence_Fast(h.ptr(), "");
    if (fast == nullptr) {
      if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();  // raised by a generator
      PyErr_Clear();
      throw Error(place_.text() + what + " must be a list, got " + kind_of(h));
    }
    return nb::steal(fast);
  }

  // Valid until the next call.
  std::string_view text(nb::handle h, const char* what) {
    const bool bytes = PyBytes_Check(h.ptr()) || PyByteArray_Check(h.ptr());
    return bytes ? decoded(h, decoded_) : utf8(h, place_, what);
  }

  // Whether it is iterable and has a length; strings are neither lists nor sets of their letters.
  static bool is_sized(nb::handle h) {
    if (PyUnicode_Check(h.ptr()) || PyBytes_Check(h.ptr())) return false;
    const bool sized = PyObject_Size(h.ptr()) >= 0;
    if (!sized) PyErr_Clear();
    return sized;
  }

  static bool is_group(nb::handle h) {
    return PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()) || PyAnySet_Check(h.ptr());
  }

  // A set by the order of its strings: its own order differs from process to process.
  static nb::object in_order(nb::handle set) {
    PyObject* list = PySequence_List(set.ptr());
    if (list == nullptr) throw nb::python_error();
    if (PyList_Sort(list) != 0) PyErr_Clear();  // something in it is no string, which is an error later
    return nb::steal(list);
  }

  void add_item(nb::handle item, int depth = 0) {
    constexpr int kDeepest = 32;
    if (depth > kDeepest)
      throw Error(place_.text() + "a token's attributes are nested too deeply (do they hold themselves?)");
    const std::size_t length = name_.size();
    if (PyDict_Check(item.ptr())) {
      const u64 hash = cache_ != nullptr ? hash_bytes(name_) : 0;
      PyObject *key = nullptr, *x = nullptr;
      for (Py_ssize_t at = 0; PyDict_Next(item.ptr(), &at, &key, &x) != 0;) {
        if (x == Py_False && !out_.keeps_zeros() && PyUnicode_Check(key)) continue;
        const std::string_view name = text(key, "an attribute's name");
        if (PyUnicode_Check(x)) {
          add_named({name_, name, utf8(x, place_, "a value"), hash}, 1.0);
        } else if (PyBool_Check(x)) {
          add_named({name_, name, {}, hash}, x == Py_True ? 1.0 : 0.0);
        } else {
          name_ += name;
          add_value(x, depth);
          name_.resize(length);
        }
      }
    } else if (is_group(item) || is_sized(item)) {
      for (nb::handle x : PyAnySet_Check(item.ptr()) ? in_order(item) : nb::borrow(item)) {
        name_.resize(length);
        name_ += text(x, "an attribute");
        out_.add_attribute(name_, 1.0);
      }
    } else {
      throw Error(place_.text() + "a token's attributes must be a dict, list or set, got " + kind_of(item));
    }
    name_.resize(length);
  }

  // Adds an attribute by the pieces of its name; joins them only if it must.
  void add_named(const AttributeCache::Name& name, double x) {
    if (x == 0.0 && !out_.keeps_zeros()) return;
    const auto find = [&] {
      if (name.prefix.empty() && name.value.data() == nullptr) return out_.number_of(name.key);
      (joined_ = name.prefix) += name.key;
      if (name.value.data() != nullptr) (joined_ += ':') += name.value;
      return out_.number_of(joined_);
    };
    out_.add_number(cache_ != nullptr ? cache_->number(name, find) : find(), x);
  }

  void add_value(nb::handle x, int depth) {
    const std::size_t length = name_.size();
    if (PyUnicode_Check(x.ptr()) || PyBytes_Check(x.ptr())) {
      name_ += ':';
      name_ += text(x, "a value");
      out_.add_attribute(name_, 1.0);
    } else if (PyDict_Check(x.ptr()) || is_group(x)) {
      name_ += ':';
      add_item(x, depth + 1);
    } else {
      const double number = x.is(Py_True) ? 1.0 : x.is(Py_False) ? 0.0 : PyFloat_AsDouble(x.ptr());
      if (number == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        throw Error(place_.text() + "the value of attribute '" + name_ +
                    "' must be a number, str, dict, list or set, got " + kind_of(x));
      }
      if (!(std::abs(number) <= kLargestValue))
        throw Error(place_.text() + "the value of attribute '" + name_ + "' must be a number from -1e10 to 1e10, got " +
                    nb::cast<std::string>(nb::str(x)));
      out_.add_attribute(name_, number);
    }
    name_.resize(length);
  }

  ItemBuilder& out_;
  AttributeCache* cache_;  // of the table that the numbers are of, or null
  Place place_;
  std::string name_, joined_, decoded_;
};

// Rows of strings: a token is a str, or a tuple or list of as many strs as every other.
inline void read_rows(nb::handle sequences, ColumnBuilder& out) {
  Place place;
  std::vector<std::string_view> row;
  for (nb::handle sequence : sequences) {
    if (PyUnicode_Check(sequence.ptr()) || PyDict_Check(sequence.ptr()))
      throw Error("sequence " + std::to_string(place.sequence) + " must be a list of tokens, got a " +
                  kind_of(sequence));
    place.position = 0;
    for (nb::handle token : nb::iter(sequence)) {
      row.clear();
      if (PyUnicode_Check(token.ptr())) {
        row.push_back(utf8(token, place, "a token"));
      } else if (PyTuple_Check(token.ptr()) || PyList_Check(token.ptr())) {
        for (nb::handle x : nb::borrow(token)) row.push_back(utf8(x, place, "a column"));
      } else {
        throw Error(place.text() + "a token must be a str or a tuple of strs, got " + kind_of(token));
      }
      const int n = static_cast<int>(row.size());
      if (out.n_columns == 0) out.n_columns = n;
      if (n == 0) throw Error(place.text() + "a token must have at least one column");
      if (n != out.n_columns)
        throw Error(place.text() + "expected " + std::to_string(out.n_columns) +
                    " columns as in the tokens before, got " + std::to_string(n));
      out.add_token(row);
      ++place.position;
    }
    out.end_sequence(true);
    ++place.sequence;
  }
}

}  // namespace crfkit
