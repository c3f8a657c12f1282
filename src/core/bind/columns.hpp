// columns.hpp: columns of numbered strings, as Python holds them.
#pragma once
#include "bind/arrays.hpp"
#include "text/columns.hpp"

namespace crfkit {

inline ColumnView column_view(const StringTable& strings, const In<u32, 2>& ids, const In<i64, 1>& offsets) {
  check_offsets(offsets, ids.shape(0), "offsets must rise from 0 to the number of tokens");
  for (std::size_t k = 0; k < ids.size(); ++k)
    require(ids.data()[k] < strings.size(), "a column names a string that does not exist");
  return {&strings, static_cast<int>(ids.shape(1)), std::ssize(offsets) - 1, ids.data(), offsets.data()};
}

}  // namespace crfkit
