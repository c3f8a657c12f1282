#include "segment/item_rows.hpp"

namespace crfkit {

void ItemRows::lay_out(const Pack& pack, const i64* offsets, const i64* all_ptr, const i32* all_lengths,
                       FunctionRef<void(i64)> item) {
  ptr.assign(1, 0);
  length.clear();
  std::vector<i64> start;
  for (int t = 0; t < pack.steps(); ++t)
    for (int s = 0; s < pack.active(t); ++s) {
      const i64 token = offsets[pack.seq[s]] + t;
      for (i64 i = all_ptr[token]; i < all_ptr[token + 1]; ++i) {
        length.push_back(all_lengths[i]);
        start.push_back(pack.row(t - all_lengths[i] + 1, s));
        item(i);
      }
      ptr.push_back(size());
    }
  start_ptr.assign(pack.rows() + 1, 0);
  for (i64 r : start) ++start_ptr[r + 1];
  for (i64 r = 0; r < pack.rows(); ++r) start_ptr[r + 1] += start_ptr[r];
  by_start.resize(length.size());
  std::vector<i64> next(start_ptr.begin(), start_ptr.end() - 1);
  for (i64 i = 0; i < size(); ++i) by_start[next[start[i]]++] = i;
}

}  // namespace crfkit
