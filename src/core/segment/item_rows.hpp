// item_rows.hpp: the listed segments of a pack.
#pragma once
#include "chain/pack.hpp"

namespace crfkit {

// By the row of their last token, and within it by rising length.
struct ItemRows {
  std::vector<i64> ptr;        // [rows + 1]; empty: none
  std::vector<i32> length;     // [items]
  std::vector<i64> by_start;   // numbers of the items by the row of their first token
  std::vector<i64> start_ptr;  // [rows + 1]
  i64 size() const { return std::ssize(length); }

  // Takes those of the pack's sequences out of all, of which all_ptr and all_lengths tell as in SegmentItems. Calls
  // item(number) for each, in the order in which they are here.
  void lay_out(const Pack& pack, const i64* offsets, const i64* all_ptr, const i32* all_lengths,
               FunctionRef<void(i64)> item);
};

}  // namespace crfkit
