#include "text/encoder.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace crfkit {
namespace {

constexpr u32 kUnset = kNone - 1;  // a value that is not looked up yet

// What a plan may have, for plans come from strangers' files too.
constexpr int kFar = 1000;  // steps between a token and what is looked at; the last column
constexpr std::size_t kMostNodes = 50000, kMostLeaves = 4096, kMostTemplates = 20000;
constexpr int kMostPieces = 1000;               // leaves of a node, counted as often as it joins them
constexpr i64 kMostReach = 10000000;            // steps beyond the ends of a sequence, of all nodes together
constexpr i64 kMostValues = 4000000;            // of all nodes that are held at once, unless they are learned
constexpr std::size_t kMostReserved = 1 << 24;  // attributes that room is made for ahead of time

bool far(int steps) { return steps < -kFar || steps > kFar; }

std::string place(const char* list, std::size_t k) { return std::string(list) + "[" + std::to_string(k) + "]"; }

void require_at_most(std::size_t most, std::size_t n, const char* what) {
  if (n > most)
    throw Error(std::string("a plan may have at most ") + std::to_string(most) + " " + what + ", got " +
                std::to_string(n));
}

// How many columns the nodes of a plan look at: of the data, of a lexicon, of its vectors.
struct Looks {
  int columns = 0, derived = 0, numbers = 0;
};

// Throws unless every node names earlier ones and the limits hold.
Looks check_plan(const std::vector<Node>& nodes, const std::vector<Template>& templates) {
  require_at_most(kMostNodes, nodes.size(), "nodes");
  require_at_most(kMostTemplates, templates.size(), "templates");
  Looks looks;
  std::size_t n_leaves = 0;
  std::vector<int> pieces(nodes.size(), 1);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (node.kind == Node::Kind::leaf) {
      ++n_leaves;
      if (node.column < 0 || node.column > kFar) throw Error(place("nodes", i) + " must look at columns 0 to 1000");
      if (far(node.place)) throw Error(place("nodes", i) + " must name a place at most 1000 steps away");
      int& n_columns = node.derived ? looks.derived : looks.columns;
      n_columns = std::max(n_columns, node.column + 1);
    } else if (node.kind == Node::Kind::number) {
      if (node.column < 0 || static_cast<std::size_t>(node.column) >= kMostNodes)
        throw Error(place("nodes", i) + " must look at a number of a vector");
      looks.numbers = std::max(looks.numbers, node.column + 1);
    } else if (node.kind == Node::Kind::join) {
      const int before = static_cast<int>(i);
      if (node.a < 0 || node.b < 0 || node.a >= before || node.b >= before || far(node.distance / 2))
        throw Error(place("nodes", i) + " must join earlier nodes at most 2000 steps apart");
      if (nodes[node.a].kind == Node::Kind::number || nodes[node.b].kind == Node::Kind::number)
        throw Error(place("nodes", i) + " must not join numbers");
      pieces[i] = pieces[node.a] + pieces[node.b];
      if (pieces[i] > kMostPieces) throw Error(place("nodes", i) + " joins more than 1000 pieces");
    }
  }
  require_at_most(kMostLeaves, n_leaves, "forms of columns");
  for (std::size_t k = 0; k < templates.size(); ++k) {
    const Template& t = templates[k];
    if (t.node < 0 || t.node >= std::ssize(nodes) || far(t.offset))
      throw Error(place("templates", k) + " must name a node at most 1000 steps away");
    if (t.edge && nodes[t.node].kind == Node::Kind::number)
      throw Error(place("templates", k) + " must not look at a number: transitions have no values");
  }
  return looks;
}

}  // namespace

TemplateEncoder::TemplateEncoder(std::vector<Node> nodes, std::vector<Template> templates, Padding pad)
    : nodes_(std::move(nodes)), templates_(std::move(templates)), pad_(pad) {
  const Looks looks = check_plan(nodes_, templates_);
  n_columns_ = looks.columns;
  n_derived_ = looks.derived;
  n_numbers_ = looks.numbers;
  for (Node& node : nodes_)
    if (node.command == Node::Command::test || node.command == Node::Command::match)
      node.matcher = std::make_shared<const Regex>(node.regex);
  const int n = n_nodes();
  share_tables();
  low_.assign(n, 0);
  high_.assign(n, 0);
  std::vector<u8> needed(n, 0);
  const auto need = [&](int node, int low, int high) {
    low_[node] = needed[node] ? std::min(low_[node], low) : low;
    high_[node] = needed[node] ? std::max(high_[node], high) : high;
    needed[node] = 1;
  };
  std::map<std::tuple<int, std::string, std::string, bool>, int> known;
  for (const Template& t : templates_) {
    need(t.node, t.offset, t.offset);
    const auto key = std::make_tuple(same_[t.node], t.prefix, t.suffix, t.edge);
    if (!known.contains(key)) {
      known[key] = n_classes();
      classes_.push_back({t.node, t.prefix, t.suffix, t.edge});
    }
    class_of_.push_back(known[key]);
  }
  i64 reach = 0;
  for (int i = n - 1; i >= 0; --i) {
    if (!needed[i]) need(i, 0, 0);
    if (far(low_[i]) || far(high_[i]))
      throw Error(place("nodes", i) + " is looked at more than 1000 steps away from the token");
    reach += high_[i] - low_[i];
    if (reach > kMostReach) throw Error(place("nodes", i) + " and those after it are looked at over too many steps");
    if (nodes_[i].kind != Node::Kind::join) continue;
    need(nodes_[i].a, low_[i], high_[i]);
    need(nodes_[i].b, low_[i] + nodes_[i].distance, high_[i] + nodes_[i].distance);
  }
  vocabulary_.attribute.resize(classes_.size());
  std::map<std::tuple<std::string, std::string, bool>, std::vector<int>> texts;
  for (int c = 0; c < n_classes(); ++c) texts[{classes_[c].prefix, classes_[c].suffix, classes_[c].edge}].push_back(c);
  for (const auto& [text, members] : texts) {
    if (members.size() < 2) continue;
    for (int c : members) classes_[c].same_text = static_cast<int>(by_name_.size());
    by_name_.emplace_back();
    named_.emplace_back();
  }
}

// Templates that write the same text around nodes of the same shape (two columns, say) mean the same attributes, so the
// nodes number their values together.
void TemplateEncoder::share_tables() {
  const int n = n_nodes();
  same_.resize(n);
  std::iota(same_.begin(), same_.end(), 0);
  const auto root = [&](int i) {
    while (same_[i] != i) i = same_[i] = same_[same_[i]];
    return i;
  };
  const std::function<void(int, int)> unite = [&](int i, int j) {
    i = root(i);
    j = root(j);
    const Node &x = nodes_[i], &y = nodes_[j];
    if (i == j || x.kind != y.kind) return;
    if (x.kind == Node::Kind::leaf &&
        (x.form != y.form || x.n != y.n || x.command != y.command || x.lower != y.lower || x.regex != y.regex))
      return;
    if (x.kind == Node::Kind::join) {
      if (x.between != y.between) return;
      unite(x.a, y.a);
      unite(x.b, y.b);
      if (root(x.a) != root(y.a) || root(x.b) != root(y.b)) return;
    }
    same_[std::max(i, j)] = std::min(i, j);
  };
  std::map<std::tuple<std::string, std::string, bool>, int> first;
  std::set<std::pair<int, int>> done;
  for (const Template& t : templates_) {
    const int other = first.try_emplace({t.prefix, t.suffix, t.edge}, t.node).first->second;
    if (done.emplace(other, t.node).second) unite(other, t.node);
  }
  table_of_.assign(n, -1);
  for (int i = 0; i < n; ++i) {
    same_[i] = root(i);
    if (same_[i] != i) {
      table_of_[i] = table_of_[same_[i]];
    } else if (nodes_[i].kind == Node::Kind::leaf) {
      table_of_[i] = static_cast<int>(vocabulary_.strings.size());
      vocabulary_.strings.emplace_back();
    } else if (nodes_[i].kind == Node::Kind::join) {
      table_of_[i] = static_cast<int>(vocabulary_.pairs.size());
      vocabulary_.pairs.emplace_back();
    }
  }
}

bool TemplateEncoder::has_edges() const {
  return std::any_of(templates_.begin(), templates_.end(), [](const Template& t) { return t.edge; });
}

u32 TemplateEncoder::n_values(int node) const {
  switch (nodes_[node].kind) {
    case Node::Kind::leaf:
      return vocabulary_.strings[table_of_[node]].size();
    case Node::Kind::join:
      return vocabulary_.pairs[table_of_[node]].size();
    default:
      return 1;
  }
}

u32& TemplateEncoder::attribute_of(int cls, u32 value) {
  std::vector<u32>& of_value = vocabulary_.attribute[cls];
  if (value >= of_value.size()) of_value.resize(std::max<std::size_t>(value + 1, of_value.size() * 3 / 2), kNone);
  return of_value[value];
}

u32 TemplateEncoder::add_attribute(int cls, u32 value) {
  const Class& c = classes_[cls];
  u32& attribute = attribute_of(cls, value);
  if (attribute != kNone) return attribute;
  if (c.same_text >= 0) {
    std::string text;
    append_value(text, c.node, value);
    std::vector<u32>& named = named_[c.same_text];
    const u32 id = by_name_[c.same_text].add(text);
    if (id == named.size()) named.push_back(n_attributes_[c.edge]++);
    return attribute = named[id];
  }
  return attribute = n_attributes_[c.edge]++;
}

u32 TemplateEncoder::leaf_value(int node, std::string_view s, bool grow) {
  const Node& x = nodes_[node];
  std::string form;
  if (x.command == Node::Command::none) {
    form = word_form(s, x.form, x.n);
    if (form.empty()) return kNone;
  } else {
    form = s;
    if (x.matcher) {
      const Regex::Match match = x.matcher->search(s);
      form = x.command == Node::Command::match ? std::string(s.substr(match.begin, match.size))
             : match.found                     ? "true"
                                               : "false";
    }
    if (x.lower)
      for (char& c : form)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  StringTable& table = vocabulary_.strings[table_of_[node]];
  return grow ? table.add(form) : table.find(form);
}

// The value of every string that stands in a leaf's column; numbered in the order of the tokens, whatever the threads.
TemplateEncoder::LeafMaps TemplateEncoder::map_leaves(const ColumnView& data, bool grow, const Threads& threads) {
  LeafMaps maps;
  maps.of_table.resize(vocabulary_.strings.size());
  maps.of_node.resize(n_derived_ > 0 ? nodes_.size() : 0);
  parallel_for(std::ssize(maps.of_table), threads.count, threads.poll, [&](i64 table, int thread) {
    Watch watch(thread == 0 ? &threads.poll : nullptr);
    std::vector<u32>& map = maps.of_table[table];
    for (int node = 0; node < n_nodes(); ++node) {
      if (nodes_[node].kind != Node::Kind::leaf || table_of_[node] != table) continue;
      if (nodes_[node].derived) {
        const Derived::Column& column = data.derived->columns[nodes_[node].column];
        std::vector<u32>& own = maps.of_node[node];
        own.assign(column.strings->size(), kUnset);
        for (u32 id : column.ids)
          if (id != kNone && own[id] == kUnset) own[id] = leaf_value(node, (*column.strings)[id], grow);
        watch.spend(column.ids.size());
        continue;
      }
      if (map.empty()) map.assign(data.strings->size(), kUnset);
      const u32* id = data.ids + nodes_[node].column;
      for (i64 t = 0; t < data.n_tokens(); ++t, id += data.n_columns) {
        if (map[*id] != kUnset) continue;
        const std::string_view string = (*data.strings)[*id];
        map[*id] = leaf_value(node, string, grow);
        watch.spend(string.size());
      }
    }
  });
  return maps;
}

// values[node][k]: its value k steps after low_[node], counted from the first token of a stretch
struct TemplateEncoder::Scratch {
  std::vector<std::vector<u32>> values;
  std::vector<std::vector<u32>> pads[2];  // of each node: its value n steps before the first, after the last token
};

u32 TemplateEncoder::pad_value(int node, i64 far, bool before, bool grow) {
  if (pad_ == Padding::wapiti)
    return leaf_value(node, (before ? "_x-" : "_x+") + (far > 4 ? std::string("#") : std::to_string(far)), grow);
  const std::string mark = (before ? "_B-" : "_B+") + std::to_string(far);
  StringTable& table = vocabulary_.strings[table_of_[node]];
  return grow ? table.add(mark) : table.find(mark);
}

void TemplateEncoder::run_nodes(const ColumnView& data, const LeafMaps& leaves, const Stretch& at, bool grow,
                                Scratch& scratch) {
  const i64 begin = data.offsets[at.seq], length = data.offsets[at.seq + 1] - begin;
  for (int i = 0; i < n_nodes(); ++i) {
    const Node& x = nodes_[i];
    std::vector<u32>& out = scratch.values[i];
    const i64 low = low_[i] + at.from, n = at.to + high_[i] - low;
    out.assign(n, kNone);
    if (x.kind == Node::Kind::always) {
      std::fill(out.begin(), out.end(), 0u);
    } else if (x.kind == Node::Kind::first) {
      if (-low >= 0 && -low < n) out[-low] = 0;
    } else if (x.kind == Node::Kind::last) {
      if (length - 1 - low >= 0 && length - 1 - low < n) out[length - 1 - low] = 0;
    } else if (x.kind == Node::Kind::number) {
      for (i64 t = std::max<i64>(0, low); t < std::min(length, low + n); ++t)
        if (data.derived->rows[begin + t] != kNone) out[t - low] = 0;
    } else if (x.kind == Node::Kind::leaf) {
      const std::vector<u32>& map = x.derived ? leaves.of_node[i] : leaves.of_table[table_of_[i]];
      const u32* ids = x.derived ? data.derived->columns[x.column].ids.data() : data.ids + x.column;
      const i64 step = x.derived ? 1 : data.n_columns;
      for (i64 k = 0; k < n; ++k) {
        const i64 t = !x.absolute ? low + k : x.place < 0 ? length + x.place : x.place - 1;
        if (t >= 0 && t < length) {
          const u32 id = ids[(begin + t) * step];
          if (id != kNone) out[k] = map[id];
        } else if (pad_ != Padding::none) {
          std::vector<u32>& pads = scratch.pads[t >= 0][i];
          const i64 far = t < 0 ? -t : t - length + 1;
          if (far >= std::ssize(pads)) pads.resize(far + 1, kUnset);
          if (pads[far] == kUnset) pads[far] = pad_value(i, far, t < 0, grow);
          out[k] = pads[far];
        }
      }
    } else {
      PairTable& pairs = vocabulary_.pairs[table_of_[i]];
      const u32* a = scratch.values[x.a].data() + (low_[i] - low_[x.a]);
      const u32* b = scratch.values[x.b].data() + (low_[i] + x.distance - low_[x.b]);
      for (i64 k = 0; k < n; ++k) pairs.prefetch(a[k], b[k]);
      for (i64 k = 0; k < n; ++k) pairs.prefetch_key(a[k], b[k]);
      for (i64 k = 0; k < n; ++k)
        if (a[k] != kNone && b[k] != kNone) out[k] = grow ? pairs.add(a[k], b[k]) : pairs.find(a[k], b[k]);
    }
  }
}

void TemplateEncoder::encode_range(const ColumnView& data, const LeafMaps& leaves, i64 begin, i64 end, bool grow,
                                   const Poll* poll, Attributes& state, Attributes& edge) {
  Scratch scratch;
  for (auto* x : {&scratch.values, &scratch.pads[0], &scratch.pads[1]}) x->resize(nodes_.size());
  const i64 tokens = data.offsets[end] - data.offsets[begin];
  state.ptr.reserve(state.ptr.size() + tokens);
  state.attr.reserve(state.attr.size() + std::min(tokens * templates_.size(), kMostReserved));
  std::vector<std::size_t> kinds[2];  // the templates of tokens, those of transitions
  for (std::size_t k = 0; k < templates_.size(); ++k) kinds[templates_[k].edge].push_back(k);
  std::vector<std::vector<std::size_t>> members(grow ? classes_.size() : 0);  // the templates of each class
  for (std::size_t k = 0; grow && k < templates_.size(); ++k) members[class_of_[k]].push_back(k);
  struct Look {
    const u32* value;  // of the template at each token
    const u32* known;  // attribute of each value
    std::size_t size;
  };
  std::vector<Look> looks(templates_.size());
  const auto look = [&](std::size_t k) {
    const std::vector<u32>& known = vocabulary_.attribute[class_of_[k]];
    const u32* value = scratch.values[templates_[k].node].data() + templates_[k].offset - low_[templates_[k].node];
    looks[k] = {value, known.data(), known.size()};
  };
  // The attributes of n tokens of the stretch; the first few may have none.
  const auto add = [&](const std::vector<std::size_t>& templates, i64 n, i64 without, Attributes& out) {
    constexpr std::size_t kRoom = 1 << 16;  // attributes that room is made for at a time
    const i64 some = std::max<i64>(1, kRoom / std::max<std::size_t>(1, templates.size()));
    u32* to = out.attr.data() + out.attr.size();
    for (i64 t = 0, full = 0; t < n; ++t) {
      if (t == full) {
        const std::size_t before = to - out.attr.data();
        out.attr.resize(before + std::min(some, n - t) * templates.size());
        to = out.attr.data() + before;
        full += some;
      }
      for (std::size_t i = t < without ? templates.size() : 0; i < templates.size(); ++i) {
        const std::size_t k = templates[i];
        const u32 value = looks[k].value[t];
        u32 attribute = value < looks[k].size ? looks[k].known[value] : kNone;
        if (attribute == kNone && grow && value != kNone) {
          attribute = add_attribute(class_of_[k], value);
          for (std::size_t q : members[class_of_[k]]) look(q);  // their table may have moved
        }
        *to = attribute;
        to += attribute != kNone;
      }
      out.ptr.push_back(to - out.attr.data());
    }
    out.attr.resize(to - out.attr.data());
  };
  // the values of what add has found; first: token of the stretch, among all
  const auto add_values = [&](i64 first, i64 t) {
    for (std::size_t k : kinds[0]) {
      const u32 value = looks[k].value[t];
      if (value >= looks[k].size || looks[k].known[value] == kNone) continue;
      const Node& node = nodes_[templates_[k].node];
      const Derived& derived = *data.derived;
      state.value.push_back(
          node.kind != Node::Kind::number
              ? 1.0
              : derived.numbers[u64{derived.rows[first + t + templates_[k].offset]} * derived.n_numbers + node.column]);
    }
  };
  Watch watch(poll);
  const i64 most = std::max<i64>(1, kMostValues / std::max(1, n_nodes()));
  for (i64 seq = begin; seq < end; ++seq) {
    const i64 length = data.offsets[seq + 1] - data.offsets[seq];
    const i64 step = grow ? length : most;
    for (i64 from = 0; from < length; from += step) {
      const i64 to = std::min(length, from + step);
      run_nodes(data, leaves, {seq, from, to}, grow, scratch);
      watch.spend((to - from) * nodes_.size());
      for (std::size_t k = 0; k < templates_.size(); ++k) look(k);
      add(kinds[0], to - from, 0, state);
      for (i64 t = from; n_numbers_ > 0 && t < to; ++t) add_values(data.offsets[seq] + from, t - from);
      if (!kinds[1].empty()) add(kinds[1], to - from, from == 0, edge);  // no transition leads into the first token
    }
  }
}

void TemplateEncoder::check_columns(const ColumnView& data, const Lexicon* lexicon) const {
  if (data.n_tokens() > 0 && data.n_columns < n_columns_)
    throw Error("the templates look at column " + std::to_string(n_columns_ - 1) + ", the data has only columns 0 to " +
                std::to_string(data.n_columns - 1));
  const int columns = lexicon == nullptr ? 0 : lexicon->n_columns();
  const i64 numbers = lexicon == nullptr ? 0 : lexicon->n_numbers();
  if (columns < n_derived_ || numbers < n_numbers_)
    throw Error("the templates look at " + std::to_string(n_derived_) + " columns and " + std::to_string(n_numbers_) +
                " numbers of a lexicon, which has " + std::to_string(columns) + " and " + std::to_string(numbers));
}

void TemplateEncoder::encode(const ColumnView& given, const Lexicon* lexicon, bool grow, const Threads& threads,
                             Attributes& state, Attributes& edge) {
  check_columns(given, lexicon);
  ColumnView data = given;
  Derived derived;
  if (lexicon != nullptr) derived = lexicon->derive(data, threads);
  data.derived = &derived;
  if (grow) know_names();
  const LeafMaps leaves = map_leaves(data, grow, threads);
  const i64 n_seq = data.n_seq;
  if (grow || threads.count == 1) {
    encode_range(data, leaves, 0, n_seq, grow, &threads.poll, state, edge);
  } else {
    const i64 n_tasks = std::min<i64>(n_seq, 4 * threads.count);
    std::vector<Attributes> states(n_tasks), edges(n_tasks);
    parallel_for(n_tasks, threads.count, threads.poll, [&](i64 k, int thread) {
      encode_range(data, leaves, n_seq * k / n_tasks, n_seq * (k + 1) / n_tasks, false,
                   thread == 0 ? &threads.poll : nullptr, states[k], edges[k]);
    });
    const auto join = [](std::vector<Attributes>& parts, Attributes& out) {
      std::size_t tokens = 1, attributes = 0;
      for (const Attributes& part : parts) {
        tokens += part.ptr.size() - 1;
        attributes += part.attr.size();
      }
      out.ptr.reserve(tokens);
      out.attr.reserve(attributes);
      for (Attributes& part : parts) {
        const i64 base = std::ssize(out.attr);
        for (std::size_t t = 1; t < part.ptr.size(); ++t) out.ptr.push_back(base + part.ptr[t]);
        out.attr.insert(out.attr.end(), part.attr.begin(), part.attr.end());
        out.value.insert(out.value.end(), part.value.begin(), part.value.end());
        part = Attributes();
      }
    };
    join(states, state);
    join(edges, edge);
  }
}

}  // namespace crfkit
