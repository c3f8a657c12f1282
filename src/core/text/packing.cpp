#include "text/packing.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace crfkit {

BlockPacker::Packed BlockPacker::pack(const std::vector<PackPart>& parts) {
  constexpr u32 kWord = 64;
  Packed out;
  bool valued = false;
  for (const PackPart& part : parts) valued |= !part.value.empty();
  found_.clear();
  std::size_t tokens = 0;
  for (const PackPart& part : parts) tokens += part.count.size();
  out.count.reserve(tokens);
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
        words_[a / kWord / kWord] |= u64{1} << (a / kWord % kWord);
        if (valued) out.value.push_back(part.value.empty() ? 1.0 : part.value[k]);
        ++kept;
      }
      out.count.push_back(kept);
    }
  }
  for (std::size_t k = 0; k < words_.size(); ++k) {
    for (u64 some = std::exchange(words_[k], 0); some != 0; some &= some - 1) {
      const std::size_t word = k * kWord + std::countr_zero(some);
      rank_[word] = static_cast<u32>(out.attr.size());
      for (u64 rest = bits_[word]; rest != 0; rest &= rest - 1)
        out.attr.push_back(static_cast<u32>(word * kWord) + static_cast<u32>(std::countr_zero(rest)));
    }
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

}  // namespace crfkit
