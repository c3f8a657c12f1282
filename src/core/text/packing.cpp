#include "text/packing.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace crfkit {
namespace {

// As std::popcount, which is a call where the instruction may be missing.
u32 count_bits(u64 x) {
  x -= x >> 1 & 0x5555555555555555u;
  x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
  x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return static_cast<u32>(x * 0x0101010101010101u >> 56);
}

}  // namespace

BlockPacker::Packed BlockPacker::pack(const std::vector<PackPart>& parts) {
  constexpr u32 kWord = 64;
  Packed out;
  bool valued = false;
  for (const PackPart& part : parts) valued |= !part.value.empty();
  std::size_t tokens = 0, entries = 0;
  for (const PackPart& part : parts) {
    tokens += part.count.size();
    entries += part.attr.size();
  }
  out.count.reserve(tokens);
  found_.resize(entries + 1);
  std::size_t n = 0;
  for (const PackPart& part : parts) {
    std::size_t k = 0;
    for (u16 count : part.count) {
      const std::size_t before = n, end = k + count;
      if (end > part.attr.size()) throw Error("an attribute has no number");
      for (; k < end; ++k) {  // what is left out comes without a pattern: a branch would be taken wrongly half the time
        if (part.attr[k] >= part.number.size()) throw Error("an attribute has no number");
        const u32 a = part.number[part.attr[k]];
        found_[n] = a;
        n += a != kNone;
        if (valued && a != kNone) out.value.push_back(part.value.empty() ? 1.0 : part.value[k]);
      }
      out.count.push_back(static_cast<u16>(n - before));
    }
  }
  found_.resize(n);
  for (u32 a : found_) {
    if (a >= n_attributes_) throw Error("an attribute has a number that is too large");
    bits_[a / kWord] |= u64{1} << (a % kWord);
    words_[a / kWord / kWord] |= u64{1} << (a / kWord % kWord);
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
    const u32 place = rank_[found_[k] / kWord] + count_bits(before);
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
