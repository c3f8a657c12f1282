// attribute_cache.hpp: numbers of the attributes that were looked up last, found by the pieces of their names.
//
// A tagger of short sequences meets the same few hundred names again and again: joining the pieces of each, and the
// walk through a table of all names that the model knows, would take most of its time.
#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

#include "text/strings.hpp"

namespace crfkit {

class AttributeCache {
  static constexpr std::size_t kEntries = 2048;  // 128 kB
  static constexpr std::size_t kLongest = 48;

 public:
  // prefix + key, or prefix + key + ':' + value where that has an address
  struct Name {
    std::string_view prefix, key, value;
    u64 prefix_hash;  // hash_bytes(prefix)

    std::size_t size() const { return prefix.size() + key.size() + (value.data() != nullptr ? 1 + value.size() : 0); }
  };
  // The number of an attribute; find() gives that of one that is not here, kNone if it has none.
  template <class Find>
  u32 number(const Name& name, Find find) {
    const std::size_t size = name.size();
    if (size > kLongest) return find();
    u64 hash = mix(name.prefix_hash ^ hash_bytes(name.key));
    if (name.value.data() != nullptr) hash = mix(hash ^ ~hash_bytes(name.value));
    Entry& entry = entries_[hash % kEntries];
    if (entry.hash == hash && entry.size == size && entry.is(name)) return entry.number;
    const u32 number = find();
    entry.hash = hash;
    entry.size = static_cast<u32>(size);
    entry.number = number;
    entry.write(name);
    return number;
  }

 private:
  struct alignas(64) Entry {
    u64 hash = 0;
    u32 size = ~u32{0}, number = 0;
    char text[kLongest] = {};

    bool is(const Name& name) const {
      const char* at = text;
      const auto next = [&](std::string_view s) {
        const bool same = same_bytes(at, s.data(), s.size());
        at += s.size();
        return same;
      };
      if (!next(name.prefix) || !next(name.key)) return false;
      return name.value.data() == nullptr || (*at++ == ':' && next(name.value));
    }
    void write(const Name& name) {
      char* at = text;
      const auto next = [&](std::string_view s) { at = std::copy(s.begin(), s.end(), at); };
      next(name.prefix);
      next(name.key);
      if (name.value.data() == nullptr) return;
      *at++ = ':';
      next(name.value);
    }
  };
  std::vector<Entry> entries_{kEntries};
};

}  // namespace crfkit
