// strings.hpp: distinct strings, and distinct pairs of numbers, numbered from zero.
#pragma once
#include <cstring>
#include <string_view>
#include <vector>

#include "base/base.hpp"

namespace crfkit {

// Two numbers drawn when the process starts: nobody can choose strings, or pairs in a model file, that meet in the same
// slots. Only where things lie in memory depends on them, never a result.
struct HashSeed {
  u64 first, second;
};
extern const HashSeed kHashSeed;

// Mixes 64 bits with the seed: the two halves of their product of 128.
inline u64 mix(u64 x) {
  __extension__ using u128 = unsigned __int128;
  const u128 product = static_cast<u128>(x ^ kHashSeed.first) * kHashSeed.second;
  return static_cast<u64>(product) ^ static_cast<u64>(product >> 64);
}

template <class T>
T load(const char* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

// Words of eight bytes; the last one overlaps the one before. Most strings are shorter than what a call to memcpy or
// memcmp takes.
inline u64 hash_bytes(std::string_view s) {
  const char* p = s.data();
  const std::size_t n = s.size();
  u64 h = n;
  if (n < 4) {
    if (n > 0) {
      const auto at = [&](std::size_t i) { return u64{static_cast<unsigned char>(p[i])} << (8 * i); };
      h ^= at(0) | at(n / 2) | at(n - 1);
    }
  } else if (n < 8) {
    h ^= u64{load<u32>(p)} << 32 | load<u32>(p + n - 4);
  } else {
    for (const char* end = p + n - 8; p < end; p += 8) h = mix(h ^ load<u64>(p));
    h ^= load<u64>(s.data() + n - 8);
  }
  return mix(h);
}

inline bool same_bytes(const char* a, const char* b, std::size_t n) {
  if (n < 4) {
    for (std::size_t i = 0; i < n; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }
  if (n < 8) return load<u32>(a) == load<u32>(b) && load<u32>(a + n - 4) == load<u32>(b + n - 4);
  for (std::size_t i = 0; i + 8 < n; i += 8)
    if (load<u64>(a + i) != load<u64>(b + i)) return false;
  return load<u64>(a + n - 8) == load<u64>(b + n - 8);
}
inline bool same_bytes(std::string_view a, std::string_view b) {
  return a.size() == b.size() && same_bytes(a.data(), b.data(), a.size());
}

// 128 bits of a string, or of what several such are made of, for files: they depend on a seed alone that the caller
// keeps. Two of 10^10 strings meet with a probability of 10^-19.
struct Key {
  u64 low = 0, high = 0;
};
class KeyMaker {
 public:
  explicit KeyMaker(u64 seed) : first_{step(seed), step(seed + 1)}, second_{step(seed + 2) | 1, step(seed + 3) | 1} {}
  Key of(std::string_view s) const {
    Key key{s.size(), s.size()};
    for (; s.size() >= 8; s.remove_prefix(8)) key = add(key, word(s, 8));
    return add(key, word(s, s.size()));
  }
  Key of(Key a, Key b) const { return {fold(fold(a.low, 0) ^ b.low, 0), fold(fold(a.high, 1) ^ b.high, 1)}; }
  Key of(Key a, u64 number) const { return add(a, number); }

 private:
  static u64 word(std::string_view s, std::size_t n) {
    u64 x = 0;  // the same on every machine
    for (std::size_t i = 0; i < n; ++i) x |= u64{static_cast<unsigned char>(s[i])} << (8 * i);
    return x;
  }
  static u64 step(u64 x) {  // splitmix
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  u64 fold(u64 x, int k) const {
    __extension__ using u128 = unsigned __int128;
    const u128 product = static_cast<u128>(x ^ first_[k]) * second_[k];
    return step(static_cast<u64>(product) ^ static_cast<u64>(product >> 64));
  }
  Key add(Key key, u64 x) const { return {fold(key.low ^ x, 0), fold(key.high ^ x, 1)}; }
  u64 first_[2], second_[2];
};

// Open addressing over ids: the caller knows how to compare an id's key. At most half full.
class Slots {
 public:
  // Returns the id whose key equals, or kNone.
  template <class Equal>
  u32 find(u64 hash, Equal equal) const {
    if (slots_.empty()) return kNone;
    const std::size_t mask = slots_.size() - 1;
    const u32 tag = static_cast<u32>(hash);
    for (std::size_t i = tag & mask;; i = (i + 1) & mask) {
      const Slot slot = slots_[i];
      if (slot.id == kNone) return kNone;
      if (slot.tag == tag && equal(slot.id)) return slot.id;
    }
  }
  // Adds id, known to be new.
  void add(u64 hash, u32 id) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    put({id, static_cast<u32>(hash)});
    ++count_;
  }
  // Room for n ids in all, known to be none so far.
  void reserve(std::size_t n) {
    std::size_t size = 64;
    while (size < 2 * n) size *= 2;
    slots_.assign(size, {});
  }
  u64 memory() const { return sizeof(Slot) * slots_.capacity(); }
  // Has the memory fetch what find(hash) will look at first; then gives the id that it will probably find, or kNone.
  void prefetch(u64 hash) const {
    if (!slots_.empty()) __builtin_prefetch(slots_.data() + (static_cast<u32>(hash) & (slots_.size() - 1)));
  }
  u32 guess(u64 hash) const { return slots_.empty() ? kNone : slots_[static_cast<u32>(hash) & (slots_.size() - 1)].id; }

 private:
  // The tag says where the id lies too: a larger table needs no keys, and is filled from left to right at two places.
  struct Slot {
    u32 id = kNone, tag = 0;
  };
  void put(Slot slot) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = slot.tag & mask;
    while (slots_[i].id != kNone) i = (i + 1) & mask;
    slots_[i] = slot;
  }
  void grow() {
    const std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.empty() ? 64 : old.size() * 2, {});
    for (const Slot& slot : old)
      if (slot.id != kNone) put(slot);
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

class StringTable {
 public:
  u32 find(std::string_view s) const {
    return slots_.find(hash_bytes(s), [&](u32 id) { return same_bytes((*this)[id], s); });
  }
  // Has the memory fetch what find will look at; of many strings, all slots first, then all ends, then all bytes.
  void prefetch(u64 hash) const { slots_.prefetch(hash); }
  void prefetch_end(u64 hash) const {
    if (const u32 id = slots_.guess(hash); id != kNone) __builtin_prefetch(ends_.data() + id);
  }
  void prefetch_bytes(u64 hash) const {
    if (const u32 id = slots_.guess(hash); id != kNone) __builtin_prefetch((*this)[id].data());
  }
  u32 add(std::string_view s) {
    const u64 hash = hash_bytes(s);
    const u32 known = slots_.find(hash, [&](u32 id) { return same_bytes((*this)[id], s); });
    if (known != kNone) return known;
    const u32 id = size();
    if (id == kNone - 1) throw Error("too many distinct strings");
    bytes_.insert(bytes_.end(), s.begin(), s.end());
    ends_.push_back(bytes_.size());
    slots_.add(hash, id);
    return id;
  }
  std::string_view operator[](u32 id) const {
    const u64 begin = id == 0 ? 0 : ends_[id - 1];
    return {bytes_.data() + begin, static_cast<std::size_t>(ends_[id] - begin)};
  }
  // To be called while empty.
  void reserve(std::size_t n, std::size_t bytes) {
    slots_.reserve(n);
    ends_.reserve(n);
    bytes_.reserve(bytes);
  }
  u32 size() const { return static_cast<u32>(ends_.size()); }
  const std::vector<char>& bytes() const { return bytes_; }
  u64 memory() const { return bytes_.capacity() + 8 * ends_.capacity() + slots_.memory(); }
  const std::vector<u64>& ends() const { return ends_; }

 private:
  std::vector<char> bytes_;
  std::vector<u64> ends_;  // end of each string in bytes_
  Slots slots_;
};

class PairTable {
 public:
  u32 find(u32 a, u32 b) const {
    const u64 key = pack(a, b);
    return slots_.find(mix(key), [&](u32 id) { return keys_[id] == key; });
  }
  u32 add(u32 a, u32 b) {
    const u64 key = pack(a, b), hash = mix(key);
    const u32 known = slots_.find(hash, [&](u32 id) { return keys_[id] == key; });
    if (known != kNone) return known;
    const u32 id = size();
    if (id == kNone - 1) throw Error("too many distinct feature values");
    keys_.push_back(key);
    slots_.add(hash, id);
    return id;
  }
  // To be called while empty.
  void reserve(std::size_t n) {
    slots_.reserve(n);
    keys_.reserve(n);
  }
  // Has the memory fetch what find(a, b) will look at; of many pairs, all slots first, then all keys.
  void prefetch(u32 a, u32 b) const { slots_.prefetch(mix(pack(a, b))); }
  void prefetch_key(u32 a, u32 b) const {
    if (const u32 id = slots_.guess(mix(pack(a, b))); id != kNone) __builtin_prefetch(keys_.data() + id);
  }
  u64 memory() const { return 8 * keys_.capacity() + slots_.memory(); }
  u32 first(u32 id) const { return static_cast<u32>(keys_[id] >> 32); }
  u32 second(u32 id) const { return static_cast<u32>(keys_[id]); }
  u32 size() const { return static_cast<u32>(keys_.size()); }

 private:
  static u64 pack(u32 a, u32 b) { return static_cast<u64>(a) << 32 | b; }
  std::vector<u64> keys_;
  Slots slots_;
};

}  // namespace crfkit
