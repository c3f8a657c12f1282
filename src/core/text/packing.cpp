#include "text/packing.hpp"

#include <algorithm>
#include <bit>

namespace crfkit {

BlockPacker::Packed BlockPacker::pack(const std::vector<PackPart>& parts) {
  constexpr u32 kWord = 64;
  Packed out;
  bool valued = false;
  for (const PackPart& part : parts) valued |= !part.value.empty();
  found_.clear();
  for (const PackPart& part : parts) {
    std::size_t k = 0;
    for (u16 count : part.count) {
      u16 kept = 0;
      for (const std::size_t end = k + count; k < end; ++k) {
        if (k >= part.attr.size() || part.attr[k] >= part.number.size()) throw Error("an attribute has no number");
        const u32 a = part.number[part.attr[k]];
        if (a == kNone) continue;
        if (a >= n_attributes_) throw Error("an attribute has a number that is too large");
        found_.push_back(a);
        bits_[a / kWord] |= u64{1} << (a % kWord);
        if (valued) out.value.push_back(part.value.empty() ? 1.0 : part.value[k]);
        ++kept;
      }
      out.count.push_back(kept);
    }
  }
  for (std::size_t word = 0; word < bits_.size(); ++word) {
    if (bits_[word] == 0) continue;
    rank_[word] = static_cast<u32>(out.attr.size());
    for (u64 rest = bits_[word]; rest != 0; rest &= rest - 1)
      out.attr.push_back(static_cast<u32>(word * kWord) + static_cast<u32>(std::countr_zero(rest)));
  }
  const bool wide = out.attr.size() > 65536;
  out.entry.resize(found_.size() * (wide ? 2 : 1));
  for (std::size_t k = 0; k < found_.size(); ++k) {
    const u64 before = bits_[found_[k] / kWord] & ((u64{1} << (found_[k] % kWord)) - 1);
    const u32 place = rank_[found_[k] / kWord] + static_cast<u32>(std::popcount(before));
    if (wide) {
      out.entry[2 * k] = static_cast<u16>(place);
      out.entry[2 * k + 1] = static_cast<u16>(place >> 16);
    } else {
      out.entry[k] = static_cast<u16>(place);
    }
  }
  for (u32 a : out.attr) bits_[a / kWord] = 0;
  return out;
}

KeyGroups group_keys(std::span<const u64> low, std::span<const u64> high, std::span<const u32> count,
                     std::span<const u64> birth) {
  KeyGroups out;
  out.group.reserve(low.size());
  std::vector<u32> first;  // key of each group
  const std::size_t size = std::bit_ceil(2 * low.size() + 2), mask = size - 1;
  std::vector<u32> slots(size, kNone);
  for (u32 k = 0; k < low.size(); ++k) {
    std::size_t i = low[k] & mask;
    while (slots[i] != kNone && (low[first[slots[i]]] != low[k] || high[first[slots[i]]] != high[k]))
      i = (i + 1) & mask;
    if (slots[i] == kNone) {
      slots[i] = static_cast<u32>(first.size());
      first.push_back(k);
      out.total.push_back(0);
      out.birth.push_back(birth[k]);
    }
    const u32 g = slots[i];
    out.group.push_back(g);
    out.total[g] += count[k];
    out.birth[g] = std::min(out.birth[g], birth[k]);
  }
  return out;
}

}  // namespace crfkit
