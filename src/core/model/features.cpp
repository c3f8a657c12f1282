#include "model/features.hpp"

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

void check_rows(const std::vector<u32>& ptr, std::size_t n, const char* what) {
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

void Layout::check(const Tokens& data) const {
  if (has_edges() && !data.edge_ptr)
    throw Error("the model's transitions look at the input, the data has no transition attributes");
}

Family Layout::state_family(int lanes) const {
  check();
  Family f;
  f.width = round_up(n_labels, lanes);
  f.ptr = state_ptr;
  f.column.assign(state_label.begin(), state_label.end());
  f.choose_dense(lanes);
  return f;
}

Family Layout::edge_family(int lanes) const {
  const int stride = round_up(n_labels, lanes);
  Family f;
  f.first_weight = edge_first;
  f.width = n_labels * stride;
  f.ptr = edge_ptr;
  f.column.reserve(edge_pair.size());
  for (u32 pair : edge_pair) f.column.push_back(pair / n_labels * stride + pair % n_labels);
  f.choose_dense(lanes);
  return f;
}

Observed observed_pairs(const i64* ptr, const u32* attr, i64 n_tokens, u32 n_attributes, const u32* column,
                        u32 n_columns, double min_count, std::vector<u32>* counts) {
  // the columns of each attribute's tokens, sorted by attribute; some attributes at a time, so that the sorted copy
  // stays small beside the data
  constexpr u64 kFew = u64{1} << 23;
  std::vector<u64> first(n_attributes + 1, 0);
  const auto for_all = [&](auto f) {
    for (i64 t = 0; t < n_tokens; ++t)
      if (column[t] != kNone)
        for (i64 k = ptr[t]; k < ptr[t + 1]; ++k) f(attr[k], column[t]);
  };
  for_all([&](u32 a, u32) { ++first[a + 1]; });
  for (u32 a = 0; a < n_attributes; ++a) first[a + 1] += first[a];
  const u64 most = std::max(kFew, first.back() / 8);
  std::vector<u32> seen;
  std::vector<u64> next(first.begin(), first.end() - 1);
  Observed out;
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
      std::sort(distinct.begin(), distinct.end());
      for (u32 c : distinct) {
        if (count[c] >= min_count) {
          out.column.push_back(c);
          if (counts != nullptr) counts->push_back(count[c]);
        }
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

// Fills in the group's rows; gives the local number of each attribute of the block (its dense row, its run, or its
// first weight).
template <class T>
std::vector<u32> number_rows(const Family& family, const std::vector<u32>& present, Group<T>& group) {
  std::vector<u32> local(family.n_attributes());
  if (!family.lists_weights) group.run_ptr.push_back(0);
  for (u32 a : present) {
    if (family.place[a].dense()) {
      local[a] = static_cast<u32>(group.dense.size());
      group.dense.push_back(family.place[a].first);
      continue;
    }
    local[a] = static_cast<u32>(family.lists_weights ? group.weight.size() : group.run_ptr.size() - 1);
    for (u32 w = family.ptr[a]; w < family.ptr[a + 1]; ++w) group.weight.push_back(w);
    if (!family.lists_weights) group.run_ptr.push_back(static_cast<u32>(group.weight.size()));
  }
  return local;
}

template <class T>
void make_group(const Family& family, const Block<T>& block, const i64* ptr, const u32* attr, const double* value,
                Group<T>& group) {
  const u32 known = family.n_attributes();
  const bool list = family.lists_weights;
  const std::vector<u32> local = number_rows(family, attributes_of(block.token, family, ptr, attr), group);
  const bool wide = std::max({group.dense.size(), group.run_ptr.size(), list ? group.weight.size() : 0}) > 65535;
  std::size_t entries = 0;
  for (i64 token : block.token) entries += ptr[token + 1] - ptr[token];
  if (wide) group.wide_id.reserve(entries);
  else group.id.reserve(entries);
  group.ptr.reserve(block.token.size() + 1);
  group.n_dense.reserve(block.token.size());
  group.ptr.push_back(0);
  u32 count = 0;
  const auto add = [&](u32 id, i64 k) {
    if (wide) group.wide_id.push_back(id);
    else group.id.push_back(static_cast<u16>(id));
    if (value) group.value.push_back(T(value[k]));
    ++count;
  };
  struct Run {
    u32 id, count;
    i64 k;
  };
  std::vector<Run> runs;  // of one token, to come behind its dense rows
  for (i64 token : block.token) {
    runs.clear();
    for (i64 k = ptr[token]; k < ptr[token + 1]; ++k) {
      const u32 a = attr[k];
      if (a >= known) continue;
      const Family::Place place = family.place[a];
      if (place.dense()) add(local[a], k);
      else runs.push_back({local[a], list ? place.count : 1, k});
    }
    const u32 dense = count - group.ptr.back();
    if (dense > 65535) throw Error("a token has more than 65535 attributes");
    for (const Run& run : runs)
      for (u32 i = 0; i < run.count; ++i) add(run.id + i, run.k);
    group.n_dense.push_back(static_cast<u16>(dense));
    group.ptr.push_back(count);
  }
  group.id.shrink_to_fit();
  group.wide_id.shrink_to_fit();
  group.value.shrink_to_fit();
  group.weight.shrink_to_fit();
}

}  // namespace

template <class T>
Block<T> make_block(const Family& state, const Family& edge, const Tokens& data, std::pair<i64, i64> seqs,
                    int pack_width) {
  Block<T> block;
  block.packs = make_packs(data.offsets, seqs.first, seqs.second, pack_width);
  block.base.push_back(0);
  for (const Pack& pack : block.packs) {
    for (int t = 0; t < pack.steps(); ++t)
      for (int s = 0; s < pack.active(t); ++s) block.token.push_back(data.offsets[pack.seq[s]] + t);
    block.base.push_back(block.token.size());
  }
  make_group(state, block, data.ptr, data.attr, data.value, block.state);
  if (data.edge_ptr) make_group<T>(edge, block, data.edge_ptr, data.edge_attr, nullptr, block.edge);
  return block;
}

template Block<float> make_block(const Family&, const Family&, const Tokens&, std::pair<i64, i64>, int);
template Block<double> make_block(const Family&, const Family&, const Tokens&, std::pair<i64, i64>, int);

}  // namespace crfkit
