#include "text/cqdb.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

#include "text/unicode.hpp"

namespace crfkit {
namespace {

constexpr u32 kTables = 256, kByteOrder = 0x62445371, kHeader = 24, kFirstRecord = kHeader + 8 * kTables;

u32 byte_of(char c) { return static_cast<u8>(c); }
u32 size_of(const auto& x) { return static_cast<u32>(x.size()); }

u32 load(std::string_view data, u64 at) {
  if (at + 4 > data.size()) throw Error("a string table is cut short");
  u32 x = 0;
  for (int k = 0; k < 4; ++k) x |= byte_of(data[at + k]) << 8 * k;
  return x;
}

void store(std::string& out, u32 x) {
  for (int k = 0; k < 4; ++k) out += static_cast<char>(x >> 8 * k & 255);
}

// Jenkins' lookup3 hash of bytes, with initial value 0.
u32 lookup3(std::string_view key) {
  std::array<u32, 3> x;
  x.fill(0xdeadbeef + size_of(key));
  const auto add = [&](std::size_t at) {
    for (std::size_t k = at; k < std::min(at + 12, key.size()); ++k)
      x[(k - at) / 4] += byte_of(key[k]) << 8 * ((k - at) % 4);
  };
  std::size_t at = 0;
  for (; key.size() - at > 12; at += 12) {
    add(at);
    constexpr int turns[] = {4, 6, 8, 16, 19, 4};
    for (int k = 0; k < 6; ++k) {
      u32 &a = x[k % 3], &b = x[(k + 1) % 3], &c = x[(k + 2) % 3];
      a = (a - c) ^ std::rotl(c, turns[k]);
      c += b;
    }
  }
  if (at == key.size()) return x[2];
  add(at);
  constexpr int turns[] = {14, 11, 25, 16, 4, 14, 24};
  for (int k = 0; k < 7; ++k) {
    u32 &a = x[(k + 2) % 3], b = x[(k + 1) % 3];
    a = (a ^ b) - std::rotl(b, turns[k]);
  }
  return x[2];
}

}  // namespace

StringTable read_cqdb(std::string_view data, u32 expected) {
  if (!data.starts_with("CQDB")) throw Error("a string table does not begin with CQDB");
  const u32 size = load(data, 4), count = load(data, 16), back = load(data, 20);
  if (load(data, 12) != kByteOrder) throw Error("a string table has another byte order");
  if (size < kFirstRecord || size > data.size()) throw Error("a string table is cut short");
  data = data.substr(0, size);
  if (count < expected) throw Error("a string table holds fewer strings than the model names");
  if (back + u64{4} * expected > size) throw Error("a string table is cut short");
  StringTable out;
  out.reserve(expected, size - kFirstRecord);
  for (u32 id = 0; id < expected; ++id) {
    const u32 at = load(data, back + u64{4} * id);
    if (at < kFirstRecord) throw Error("string " + std::to_string(id) + " is missing");
    const u32 length = load(data, at + u64{4});
    if (load(data, at) != id || length == 0 || at + u64{8} + length > size)
      throw Error("the record of string " + std::to_string(id) + " is damaged");
    const std::string_view s = data.substr(at + 8, length - 1);
    if (data[at + 8 + length - 1] != 0 || s.find('\0') != std::string_view::npos)
      throw Error("the record of string " + std::to_string(id) + " is damaged");
    if (invalid_utf8(s) != std::string_view::npos) throw Error("string " + std::to_string(id) + " is not valid UTF-8");
    if (out.add(s) != id) throw Error("string '" + std::string(s) + "' is there twice");
  }
  return out;
}

std::string write_cqdb(const StringTable& strings) {
  struct Bucket {
    u32 hash, place;
  };
  std::array<std::vector<Bucket>, kTables> tables;
  std::string records, key;
  std::vector<u32> places;
  for (u32 id = 0; id < strings.size(); ++id) {
    key = strings[id];
    if (key.find('\0') != std::string::npos) throw Error("a name has a zero byte, which CRFsuite's files cannot hold");
    key += '\0';
    const u32 place = kFirstRecord + size_of(records);
    if (records.size() + key.size() + 8 > 0xf0000000u)
      throw Error("CRFsuite's files cannot hold as many names: they are limited to 4 GB");
    store(records, id);
    store(records, size_of(key));
    records += key;
    places.push_back(place);
    const u32 hash = lookup3(key);
    tables[hash % kTables].push_back({hash, place});
  }
  std::string refs, hashed;
  const u32 first_table = kFirstRecord + size_of(records);
  for (const auto& table : tables) {
    const u32 n = 2 * size_of(table);
    store(refs, n == 0 ? 0 : first_table + size_of(hashed));
    store(refs, n);
    std::vector<Bucket> slots(n, {0, 0});
    std::vector<u32> open(n);  // the first slot from here on that may be free: names may be chosen to meet in one
    std::iota(open.begin(), open.end(), 0u);
    for (const Bucket& x : table) {
      u32 k = (x.hash >> 8) % n;
      while (open[k] != k) k = open[k] = open[open[k]];
      slots[k] = x;
      open[k] = (k + 1) % n;
    }
    for (const Bucket& x : slots) {
      store(hashed, x.hash);
      store(hashed, x.place);
    }
  }
  const u64 back = first_table + u64{hashed.size()}, size = back + 4 * places.size();
  if (size > 0xffffffffu) throw Error("CRFsuite's files cannot hold as many names: they are limited to 4 GB");
  std::string out = "CQDB";
  for (u32 x : {static_cast<u32>(size), 0u, kByteOrder, strings.size(), static_cast<u32>(back)}) store(out, x);
  out += refs + records + hashed;
  for (u32 place : places) store(out, place);
  return out;
}

}  // namespace crfkit
