#include "text/run_keys.hpp"

#include <atomic>
#include <bit>

namespace crfkit {
namespace {

constexpr i64 kBuckets = i64{1} << SortedKeys::kBits;
constexpr i64 kAtOnce = 1 << 14;  // keys that are compared at a time: their groups stay in the cache

// Equal keys, and the one of them that was seen first.
struct Group {
  u64 low, high, total;
  i64 born;  // piece; kOnlyOne: not looked up, since there is one key so far
  u32 run, id;
};
constexpr i64 kOnlyOne = -1;

i64 piece_of(const RunKeys& run, u32 id) {
  const auto at = std::upper_bound(run.pieces.begin(), run.pieces.end(), i64{id},
                                   [](i64 k, const RunKeys::Piece& piece) { return k < piece.known; });
  if (at == run.pieces.end()) throw Error("an attribute comes from no piece");
  return at->number;
}

// The groups of the keys in some buckets.
class Groups {
 public:
  Groups(const std::vector<RunKeys>& runs, i64 first, i64 last) : runs_(runs), first_(first), last_(last) {
    std::size_t n = 0;
    for (const RunKeys& run : runs) n += run.first[last] - run.first[first];
    slots_.assign(std::bit_ceil(2 * n + 2), kNone);
    of_key_.reserve(n);
    each([&](u32 r, const u64* record) { add(r, record); });
  }

  // Gives each attribute its group's number, counted from what were kept before, in no order of theirs.
  void number(std::vector<RunKeys>& runs, double min_freq, std::atomic<u64>& kept) const {
    std::vector<u32> place(groups_.size(), kNone);
    u64 good = 0;
    for (const Group& group : groups_) good += static_cast<double>(group.total) >= min_freq;
    u64 next = kept.fetch_add(good);
    if (next + good >= kNone) throw Error("there are more than 2^32 attributes: raise 'min_freq'");
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (static_cast<double>(groups_[g].total) >= min_freq) place[g] = static_cast<u32>(next++);
    std::size_t k = 0;
    each([&](u32 r, const u64* record) {
      const u32 g = of_key_[k++], id = static_cast<u32>(record[2]);
      runs[r].number[id] = place[g];
      runs[r].own[id] = place[g] != kNone && groups_[g].run == r && groups_[g].id == id;
    });
  }

 private:
  template <class F>
  void each(F f) const {
    for (u32 r = 0; r < runs_.size(); ++r)
      for (i64 k = runs_[r].first[first_]; k < runs_[r].first[last_]; ++k) f(r, runs_[r].records.data() + 3 * k);
  }
  void add(u32 r, const u64* record) {
    const u64 low = record[0], high = record[1];
    const u32 id = static_cast<u32>(record[2]);
    if (id >= runs_[r].number.size()) throw Error("an attribute has a number that is too large");
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = low & mask;
    while (slots_[i] != kNone && (groups_[slots_[i]].low != low || groups_[slots_[i]].high != high)) i = (i + 1) & mask;
    of_key_.push_back(slots_[i] == kNone ? static_cast<u32>(groups_.size()) : slots_[i]);
    if (slots_[i] == kNone) {
      slots_[i] = of_key_.back();
      groups_.push_back({low, high, record[2] >> 32, kOnlyOne, r, id});
      return;
    }
    Group& group = groups_[slots_[i]];
    group.total += record[2] >> 32;
    if (group.born == kOnlyOne) group.born = piece_of(runs_[group.run], group.id);
    if (const i64 born = piece_of(runs_[r], id); born < group.born) {
      group.born = born;
      group.run = r;
      group.id = id;
    }
  }

  const std::vector<RunKeys>& runs_;
  i64 first_, last_;
  std::vector<u32> slots_, of_key_;
  std::vector<Group> groups_;
};

// Buckets that together have as many keys as are compared at a time: the first of each task, and the end.
std::vector<i64> cut(const std::vector<RunKeys>& runs) {
  std::vector<i64> out{0};
  i64 keys = 0;
  for (i64 bucket = 0; bucket < kBuckets; ++bucket) {
    i64 more = 0;
    for (const RunKeys& run : runs) more += run.first[bucket + 1] - run.first[bucket];
    if (keys > 0 && keys + more > kAtOnce) {
      out.push_back(bucket);
      keys = 0;
    }
    keys += more;
  }
  out.push_back(kBuckets);
  return out;
}

}  // namespace

SortedKeys sort_keys(const u64* keys, std::span<const u32> count) {
  constexpr int shift = 64 - SortedKeys::kBits;
  SortedKeys out;
  out.first.assign(kBuckets + 1, 0);
  for (std::size_t k = 0; k < count.size(); ++k) ++out.first[(keys[2 * k] >> shift) + 1];
  for (i64 bucket = 0; bucket < kBuckets; ++bucket) out.first[bucket + 1] += out.first[bucket];
  std::vector<i64> next(out.first.begin(), out.first.end() - 1);
  out.records.resize(3 * count.size());
  for (std::size_t k = 0; k < count.size(); ++k) {
    u64* record = out.records.data() + 3 * next[keys[2 * k] >> shift]++;
    record[0] = keys[2 * k];
    record[1] = keys[2 * k + 1];
    record[2] = u64{count[k]} << 32 | k;
  }
  return out;
}

u32 merge_keys(std::vector<RunKeys>& runs, double min_freq, const Threads& threads) {
  const std::vector<i64> cuts = cut(runs);
  std::atomic<u64> kept{0};
  parallel_for(std::ssize(cuts) - 1, threads.count, threads.poll,
               [&](i64 k, int) { Groups(runs, cuts[k], cuts[k + 1]).number(runs, min_freq, kept); });
  // the pieces in their order, each with the attributes that its run had not seen before
  struct Born {
    i64 piece, first, last;
    const RunKeys* run;
  };
  std::vector<Born> order;
  for (const RunKeys& run : runs)
    for (std::size_t k = 0; k < run.pieces.size(); ++k)
      order.push_back({run.pieces[k].number, k == 0 ? 0 : run.pieces[k - 1].known, run.pieces[k].known, &run});
  std::sort(order.begin(), order.end(), [](const Born& a, const Born& b) { return a.piece < b.piece; });
  std::vector<u32> rank(kept);
  u32 next = 0;
  for (const Born& born : order)
    for (i64 id = born.first; id < born.last; ++id)
      if (born.run->own[id]) rank[born.run->number[id]] = next++;
  for (RunKeys& run : runs)
    parallel_blocks(std::ssize(run.number), kAtOnce, threads, [&](i64 begin, i64 end, int) {
      for (u32& x : run.number.subspan(begin, end - begin)) x = x == kNone ? kNone : rank[x];
    });
  return next;
}

}  // namespace crfkit
