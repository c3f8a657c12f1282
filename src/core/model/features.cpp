#include "model/features.hpp"

#include "model/pair_counts.hpp"

#include <algorithm>
#include <unordered_map>

namespace crfkit {

void Family::choose_dense(int lanes) {
  const u32 limit = std::max(1, width / lanes);
  lists_weights = limit <= 4;
  place.clear();
  place.reserve(n_attributes());
  dense_attr.clear();
  for (u32 a = 0; a < n_attributes(); ++a) {
    const u32 count = ptr[a + 1] - ptr[a];
    if (count > limit) {
      place.push_back({static_cast<u32>(dense_attr.size()), kNone});
      dense_attr.push_back(a);
    } else {
      place.push_back({ptr[a], count});
    }
  }
}

namespace {

void check_rows(std::span<const u32> ptr, std::size_t n, const char* what) {
  if (ptr.empty() ? n != 0 : ptr.front() != 0 || ptr.back() != n || !std::is_sorted(ptr.begin(), ptr.end()))
    throw Error(std::string("the model's ") + what + " weights are not laid out in ascending rows");
}

}  // namespace

void Layout::check() const {
  const u64 labels = n_labels;
  if (n_labels < 1 || n_labels > 65535) throw Error("a model needs 1 to 65535 labels");
  check_rows(state_ptr, state_label.size(), "state");
  check_rows(edge_ptr, edge_pair.size(), "edge");
  for (u16 label : state_label)
    if (label >= labels) throw Error("a state weight of the model names a label that does not exist");
  for (u32 pair : edge_pair)
    if (pair >= labels * labels) throw Error("an edge weight of the model names a label that does not exist");
  if (transition.size() != labels * labels) throw Error("the model's transition table has the wrong size");
  for (i32 w : transition)
    if (w < -1 || w >= i64{size}) throw Error("a transition of the model names a weight that does not exist");
  for (i64 first : {start, end})
    if (first < -1 || (first >= 0 && first + n_labels > i64{size}))
      throw Error("the model's start or end weights do not exist");
  if (state_label.size() > size || edge_first + edge_pair.size() > size)
    throw Error("the model has fewer weights than its layout names");
}

void Layout::check(bool data_has_edges) const {
  if (has_edges() && !data_has_edges)
    throw Error("the model's transitions look at the input, the data has no transition attributes");
}

Family Layout::state_family(int lanes) const {
  check();
  Family f;
  f.width = round_up(n_labels, lanes);
  f.ptr = state_ptr;
  f.label = state_label;
  f.choose_dense(lanes);
  return f;
}

Family Layout::edge_family(int lanes) const {
  const int stride = round_up(n_labels, lanes);
  Family f;
  f.first_weight = edge_first;
  f.width = n_labels * stride;
  f.ptr = edge_ptr;
  f.pair_columns.reserve(edge_pair.size());
  for (u32 pair : edge_pair) f.pair_columns.push_back(pair / n_labels * stride + pair % n_labels);
  f.choose_dense(lanes);
  return f;
}

Observed observed_pairs(const i64* ptr, const u32* attr, i64 n_tokens, u32 n_attributes, const u32* column,
                        u32 n_columns, double min_count) {
  return counted_pairs(ptr, attr, n_tokens, n_attributes, column, n_columns, min_count, nullptr);
}

Observed counted_pairs(const i64* ptr, const u32* attr, i64 n_tokens, u32 n_attributes, const u32* column,
                       u32 n_columns, double min_count, std::vector<u32>* counts) {
  const auto for_all = [&](auto f) {
    for (i64 t = 0; t < n_tokens; ++t)
      if (column[t] != kNone)
        for (i64 k = ptr[t]; k < ptr[t + 1]; ++k) f(attr[k], column[t]);
  };
  Observed out;
  const auto add = [&](u32 c, u32 count) {
    if (count < min_count) return;
    out.column.push_back(c);
    if (counts != nullptr) counts->push_back(count);
  };
  u64 entries = 0;
  for_all([&](u32, u32) { ++entries; });
  if (entries * 8 < n_attributes) {  // nothing is done for each attribute but to note where its columns begin
    std::vector<u64> pairs;
    pairs.reserve(entries);
    for_all([&](u32 a, u32 c) { pairs.push_back(u64{a} << 32 | c); });
    std::sort(pairs.begin(), pairs.end());
    out.ptr.assign(n_attributes + 1, 0);
    u32 done = 0;  // attributes whose columns are known
    for (std::size_t k = 0; k < pairs.size();) {
      const u32 a = static_cast<u32>(pairs[k] >> 32);
      std::fill(out.ptr.begin() + done + 1, out.ptr.begin() + a + 1, static_cast<u32>(out.column.size()));
      done = a;
      const std::size_t begin = k;
      while (k < pairs.size() && pairs[k] == pairs[begin]) ++k;
      add(static_cast<u32>(pairs[begin]), static_cast<u32>(k - begin));
    }
    std::fill(out.ptr.begin() + done + 1, out.ptr.end(), static_cast<u32>(out.column.size()));
    return out;
  }
  // the columns of each attribute's tokens, sorted by attribute; some attributes at a time, so that the sorted copy
  // stays small beside the data
  constexpr u64 kFew = u64{1} << 23;
  std::vector<u64> first(n_attributes + 1, 0);
  for_all([&](u32 a, u32) { ++first[a + 1]; });
  for (u32 a = 0; a < n_attributes; ++a) first[a + 1] += first[a];
  const u64 most = std::max(kFew, first.back() / 8);
  std::vector<u32> seen;
  std::vector<u64> next(first.begin(), first.end() - 1);
  out.ptr.reserve(n_attributes + 1);
  out.ptr.push_back(0);
  std::vector<u32> count(n_columns, 0), distinct;
  for (u32 begin = 0, end = 0; begin < n_attributes; begin = end) {
    for (end = begin + 1; end < n_attributes && first[end + 1] - first[begin] <= most;) ++end;
    seen.resize(first[end] - first[begin]);
    for_all([&](u32 a, u32 c) {
      if (a >= begin && a < end) seen[next[a]++ - first[begin]] = c;
    });
    for (u32 a = begin; a < end; ++a) {
      distinct.clear();
      for (u64 k = first[a] - first[begin]; k < first[a + 1] - first[begin]; ++k)
        if (count[seen[k]]++ == 0) distinct.push_back(seen[k]);
      if (distinct.size() > 1) std::sort(distinct.begin(), distinct.end());
      for (u32 c : distinct) {
        add(c, count[c]);
        count[c] = 0;
      }
      out.ptr.push_back(static_cast<u32>(out.column.size()));
    }
  }
  return out;
}

i64 tokens_per_block(int n_labels) { return std::clamp<i64>(8192 * 256 / std::max(n_labels, 1), 2048, 8192); }

std::vector<std::pair<i64, i64>> cut_blocks(const i64* offsets, i64 n_seq, i64 tokens_per_block) {
  std::vector<std::pair<i64, i64>> blocks;
  for (i64 s = 0; s < n_seq;) {
    i64 end = s + 1;
    while (end < n_seq && offsets[end + 1] - offsets[s] <= tokens_per_block) ++end;
    blocks.emplace_back(s, end);
    s = end;
  }
  return blocks;
}

namespace {

// The block's attributes, ascending.
std::vector<u32> attributes_of(const std::vector<i64>& tokens, const Family& family, const i64* ptr, const u32* attr) {
  const u32 known = family.n_attributes();
  std::vector<u32> present;
  for (i64 token : tokens)
    for (i64 k = ptr[token]; k < ptr[token + 1]; ++k)
      if (attr[k] < known) present.push_back(attr[k]);
  if (present.size() * 8 < known) {
    std::sort(present.begin(), present.end());
    present.erase(std::unique(present.begin(), present.end()), present.end());
  } else {
    std::vector<u8> seen(known, 0);
    for (u32 a : present) seen[a] = 1;
    present.clear();
    for (u32 a = 0; a < known; ++a)
      if (seen[a]) present.push_back(a);
  }
  return present;
}

// Where a block has the weights of one of its attributes.
struct Local {
  u32 first;  // its dense row, its run, or its first weight; kNone: the model does not know it
  u32 count;  // its entries; kNone for a dense row
};

// Fills in the group's rows; gives the places of the block's attributes.
template <class T>
void number_rows(const Family& family, const u32* present, std::size_t n, std::vector<Local>& local, Group<T>& group) {
  const u32 known = family.n_attributes();
  local.resize(n);
  for (auto* x : {&group.dense, &group.run_ptr, &group.weight}) x->clear();
  if (!family.lists_weights) group.run_ptr.push_back(0);
  constexpr std::size_t kAhead = 16;  // the places lie all over the memory
  for (std::size_t i = 0; i < n; ++i) {
    if (i + kAhead < n && present[i + kAhead] < known) __builtin_prefetch(&family.place[present[i + kAhead]]);
    if (present[i] >= known) {
      local[i] = {kNone, 0};
      continue;
    }
    const Family::Place place = family.place[present[i]];
    if (place.dense()) {
      local[i] = {static_cast<u32>(group.dense.size()), kNone};
      group.dense.push_back(place.first);
      continue;
    }
    local[i] = {static_cast<u32>(family.lists_weights ? group.weight.size() : group.run_ptr.size() - 1),
                family.lists_weights ? place.count : 1};
    for (u32 w = place.first; w < place.first + place.count; ++w) group.weight.push_back(w);
    if (!family.lists_weights) group.run_ptr.push_back(static_cast<u32>(group.weight.size()));
  }
}

// Writes the entries of the tokens, a token's dense rows first. begin(t), end(t): the entries of token row t in the
// data; local(k): where the block has the attribute of entry k.
template <class T, class Id, class Begin, class End, class Find>
void write_entries(std::size_t rows, const Begin& begin, const End& end, const Find& local, const double* value,
                   std::vector<Id>& id, Group<T>& group) {
  group.ptr.resize(rows + 1);
  group.n_dense.resize(rows);
  group.ptr[0] = 0;
  std::size_t count = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const i64 first = begin(r), last = end(r);
    std::size_t most = count;
    for (i64 k = first; k < last; ++k) {
      const Local x = local(k);
      most += x.count == kNone ? 1 : x.count;
    }
    if (most > id.size()) id.resize(2 * most);
    if (value && most > group.value.size()) group.value.resize(2 * most);
    Id* out = id.data();
    for (i64 k = first; k < last; ++k) {
      const Local x = local(k);
      if (x.count != kNone) continue;
      if (value) group.value[count] = T(value[k]);
      out[count++] = static_cast<Id>(x.first);
    }
    const std::size_t dense = count - group.ptr[r];
    if (dense > 65535) throw Error("a token has more than 65535 attributes");
    group.n_dense[r] = static_cast<u16>(dense);
    for (i64 k = first; count < most && k < last; ++k) {
      const Local x = local(k);
      if (x.count == kNone) continue;
      for (u32 i = 0; i < x.count; ++i) {
        if (value) group.value[count] = T(value[k]);
        out[count++] = static_cast<Id>(x.first + i);
      }
    }
    if (count > kNone) throw Error("a block has more entries than 32 bits count");
    group.ptr[r + 1] = static_cast<u32>(count);
  }
  id.resize(count);
  if (value) group.value.resize(count);
}

template <class T, class Begin, class End, class Find>
void fill_group(const Family& family, std::size_t rows, const Begin& begin, const End& end, const Find& local,
                const double* value, Group<T>& group) {
  group.id.clear();
  group.wide_id.clear();
  group.value.clear();
  const std::size_t listed = family.lists_weights ? group.weight.size() : 0;
  if (std::max({group.dense.size(), group.run_ptr.size(), listed}) > 65535)
    write_entries(rows, begin, end, local, value, group.wide_id, group);
  else write_entries(rows, begin, end, local, value, group.id, group);
}

template <class T>
void make_group(const Family& family, const Block<T>& block, const i64* ptr, const u32* attr, const double* value,
                Group<T>& group) {
  const std::vector<u32> present = attributes_of(block.token, family, ptr, attr);
  std::vector<Local> local, of_attribute(family.n_attributes());
  number_rows(family, present.data(), present.size(), local, group);
  for (std::size_t i = 0; i < present.size(); ++i) of_attribute[present[i]] = local[i];
  const auto find = [&](i64 k) { return attr[k] < family.n_attributes() ? of_attribute[attr[k]] : Local{kNone, 0}; };
  fill_group(
      family, block.token.size(), [&](std::size_t r) { return ptr[block.token[r]]; },
      [&](std::size_t r) { return ptr[block.token[r] + 1]; }, find, value, group);
  group.id.shrink_to_fit();
  group.wide_id.shrink_to_fit();
  group.value.shrink_to_fit();
  group.weight.shrink_to_fit();
}

// The packs of a block and the tokens of its rows.
template <class T>
void make_rows(const i64* offsets, std::pair<i64, i64> seqs, int pack_width, Block<T>& block) {
  block.packs = make_packs(offsets, seqs.first, seqs.second, pack_width);
  block.base.assign(1, 0);
  block.token.clear();
  for (const Pack& pack : block.packs) {
    for (int t = 0; t < pack.steps(); ++t)
      for (int s = 0; s < pack.active(t); ++s) block.token.push_back(offsets[pack.seq[s]] + t);
    block.base.push_back(block.token.size());
  }
}

// A file may say anything: what it says is held against its own sizes here, where it is used.
[[noreturn]] void fail_block(i64 b) { throw Error("block " + std::to_string(b) + " of the file is damaged"); }

template <class T>
void load_group(const Family& family, const StoredGroup& stored, i64 b, i64 first_token, i64 n_tokens,
                const Block<T>& block, Group<T>& group) {
  thread_local std::vector<Local> local;
  thread_local std::vector<u32> first;  // entry of each token of the block
  const i64 n_attr = stored.n_attr(b), n_entries = stored.first_value[b + 1] - stored.first_value[b];
  number_rows(family, stored.attr + stored.first_attr[b], n_attr, local, group);
  first.resize(n_tokens + 1);
  u64 total = 0;
  for (i64 t = 0; t < n_tokens; ++t) {
    first[t] = static_cast<u32>(total);
    total += stored.count[first_token + t];
  }
  first[n_tokens] = static_cast<u32>(total);
  const bool wide = stored.wide(b);
  if (total != static_cast<u64>(n_entries) || total >= kNone ||
      stored.first_entry[b + 1] - stored.first_entry[b] != n_entries * (wide ? 2 : 1))
    fail_block(b);
  const u16* entry = stored.entry + stored.first_entry[b];
  const Local* places = local.data();
  const double* value = stored.value ? stored.value + stored.first_value[b] : nullptr;
  const auto begin = [&](std::size_t r) { return i64{first[block.token[r] - first_token]}; };
  const auto end = [&](std::size_t r) { return i64{first[block.token[r] - first_token + 1]}; };
  const auto find = [&](i64 k) {
    const i64 i = wide ? entry[2 * k] + (i64{entry[2 * k + 1]} << 16) : i64{entry[k]};
    if (i >= n_attr) fail_block(b);
    return places[i];
  };
  fill_group(family, block.token.size(), begin, end, find, value, group);
}

}  // namespace

template <class T>
Block<T> make_block(const Family& state, const Family& edge, const Tokens& data, std::pair<i64, i64> seqs,
                    int pack_width) {
  Block<T> block;
  make_rows(data.offsets, seqs, pack_width, block);
  make_group(state, block, data.ptr, data.attr, data.value, block.state);
  if (data.edge_ptr) make_group<T>(edge, block, data.edge_ptr, data.edge_attr, nullptr, block.edge);
  return block;
}

template <class T>
void load_block(const Family& state, const Family& edge, const StoredTokens& data, i64 b, int pack_width,
                Block<T>& block) {
  const std::pair<i64, i64> seqs(data.first_seq[b], data.first_seq[b + 1]);
  const i64 first = data.offsets[seqs.first], n = data.offsets[seqs.second] - first;
  make_rows(data.offsets, seqs, pack_width, block);
  load_group(state, data.state, b, first, n, block, block.state);
  if (data.edge.count) load_group(edge, data.edge, b, first, n, block, block.edge);
}

Observed stored_pairs(const StoredTokens& data, bool edge, u32 n_attributes, const i32* labels, u32 n_labels,
                      double min_count, const Poll& poll) {
  constexpr u64 kMostCells = u64{1} << 27;
  const StoredGroup& stored = edge ? data.edge : data.state;
  const u64 n_columns = edge ? u64{n_labels} * n_labels : n_labels;
  // counts go as far as they matter
  const bool few = min_count <= 255;
  const u64 rows = std::max<u64>(1, kMostCells / (few ? 1 : 4) / n_columns);
  Observed out;
  out.ptr.reserve(n_attributes + u64{1});
  out.ptr.push_back(0);
  const auto count = [&](auto zero, u64 most, u32 begin, u32 end) {
    using Count = decltype(zero);
    std::vector<Count> seen((end - begin) * n_columns, zero);
    for (i64 b = 0; b < data.n_blocks; ++b) {
      const u32* attr = stored.attr + stored.first_attr[b];
      const u16* entry = stored.entry + stored.first_entry[b];
      const i64 n_attr = stored.n_attr(b), n_words = stored.first_entry[b + 1] - stored.first_entry[b];
      const bool wide = stored.wide(b);
      i64 k = 0;
      for (i64 s = data.first_seq[b]; s < data.first_seq[b + 1]; ++s)
        for (i64 t = data.offsets[s]; t < data.offsets[s + 1]; ++t) {
          const i64 next = k + stored.count[t];
          if (next * (wide ? 2 : 1) > n_words) fail_block(b);
          const bool skip = labels[t] < 0 || (edge && (t == data.offsets[s] || labels[t - 1] < 0));
          const u64 column = skip ? 0 : edge ? u64{static_cast<u32>(labels[t - 1])} * n_labels + labels[t] : labels[t];
          for (; !skip && k < next; ++k) {
            const i64 i = wide ? entry[2 * k] + (i64{entry[2 * k + 1]} << 16) : i64{entry[k]};
            if (i >= n_attr || attr[i] >= n_attributes) fail_block(b);
            if (attr[i] < begin || attr[i] >= end) continue;
            Count& x = seen[(attr[i] - begin) * n_columns + column];
            x = static_cast<Count>(x + (x < most));
          }
          k = next;
        }
      if (poll) poll();
    }
    for (u64 a = 0; a < end - begin; ++a) {
      for (u64 c = 0; c < n_columns; ++c)
        if (seen[a * n_columns + c] > 0 && seen[a * n_columns + c] >= min_count)
          out.column.push_back(static_cast<u32>(c));
      if (out.column.size() >= kNone) throw Error("the model would have more than 2^32 weights");
      out.ptr.push_back(static_cast<u32>(out.column.size()));
    }
  };
  for (u64 begin = 0; begin < n_attributes; begin += rows) {
    const u32 first = static_cast<u32>(begin), last = static_cast<u32>(std::min<u64>(n_attributes, begin + rows));
    if (few) count(u8{0}, 255, first, last);
    else count(u32{0}, kNone, first, last);
  }
  out.column.shrink_to_fit();
  return out;
}

template Block<float> make_block(const Family&, const Family&, const Tokens&, std::pair<i64, i64>, int);
template Block<double> make_block(const Family&, const Family&, const Tokens&, std::pair<i64, i64>, int);
template void load_block(const Family&, const Family&, const StoredTokens&, i64, int, Block<float>&);
template void load_block(const Family&, const Family&, const StoredTokens&, i64, int, Block<double>&);

}  // namespace crfkit
