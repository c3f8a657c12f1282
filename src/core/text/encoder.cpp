#include "text/encoder.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

namespace crfkit {
namespace {

constexpr u32 kUnset = kNone - 1;  // a value that is not looked up yet

}  // namespace

TemplateEncoder::TemplateEncoder(std::vector<Node> nodes, std::vector<Template> templates, Padding pad)
    : nodes_(std::move(nodes)), templates_(std::move(templates)), pad_(pad) {
  constexpr int kFar = 1000;
  const auto far = [](int steps) { return steps < -kFar || steps > kFar; };
  const int n = n_nodes();
  for (int i = 0; i < n; ++i) {
    Node& node = nodes_[i];
    if (node.kind == Node::Kind::leaf) {
      if (node.column < 0 || node.column > kFar) throw Error("a template may look at columns 0 to 1000");
      if (far(node.place)) throw Error("a template must name a place at most 1000 steps away");
      n_columns_ = std::max(n_columns_, node.column + 1);
      if (node.command == Node::Command::test || node.command == Node::Command::match)
        node.matcher = std::make_shared<const Regex>(node.regex);
    } else if (node.kind == Node::Kind::join) {
      if (node.a < 0 || node.b < 0 || node.a >= i || node.b >= i || far(node.distance / 2))
        throw Error("a join must name earlier nodes at most 2000 steps away");
    }
  }
  for (const Template& t : templates_)
    if (t.node < 0 || t.node >= n || far(t.offset)) throw Error("a template must name a node at most 1000 steps away");
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
  for (int i = n - 1; i >= 0; --i) {
    if (!needed[i]) need(i, 0, 0);
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
    while (same_[i] != i) i = same_[i];
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
  for (const Template& t : templates_)
    unite(first.try_emplace({t.prefix, t.suffix, t.edge}, t.node).first->second, t.node);
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

void TemplateEncoder::append_value(std::string& out, int node, u32 value) const {
  const Node& x = nodes_[node];
  if (x.kind == Node::Kind::leaf) {
    out += vocabulary_.strings[table_of_[node]][value];
  } else if (x.kind == Node::Kind::join) {
    const PairTable& pairs = vocabulary_.pairs[table_of_[node]];
    append_value(out, x.a, pairs.first(value));
    out += x.between;
    append_value(out, x.b, pairs.second(value));
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
  LeafMaps maps(vocabulary_.strings.size());
  parallel_for(std::ssize(maps), threads.count, threads.poll, [&](i64 table, int) {
    std::vector<u32>& map = maps[table];
    map.assign(data.strings->size(), kUnset);
    for (int node = 0; node < n_nodes(); ++node) {
      if (nodes_[node].kind != Node::Kind::leaf || table_of_[node] != table) continue;
      const u32* id = data.ids + nodes_[node].column;
      for (i64 t = 0; t < data.n_tokens(); ++t, id += data.n_columns)
        if (map[*id] == kUnset) map[*id] = leaf_value(node, (*data.strings)[*id], grow);
    }
  });
  return maps;
}

// values[node][k]: its value k steps after low_[node], counted from the first token
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

void TemplateEncoder::run_nodes(const ColumnView& data, const LeafMaps& leaves, i64 seq, bool grow, Scratch& scratch) {
  const i64 begin = data.offsets[seq], length = data.offsets[seq + 1] - begin;
  for (int i = 0; i < n_nodes(); ++i) {
    const Node& x = nodes_[i];
    std::vector<u32>& out = scratch.values[i];
    const i64 low = low_[i], n = length + high_[i] - low;
    out.assign(n, kNone);
    if (x.kind == Node::Kind::always) {
      std::fill(out.begin(), out.end(), 0u);
    } else if (x.kind == Node::Kind::first) {
      if (-low >= 0 && -low < n) out[-low] = 0;
    } else if (x.kind == Node::Kind::last) {
      if (length - 1 - low >= 0 && length - 1 - low < n) out[length - 1 - low] = 0;
    } else if (x.kind == Node::Kind::leaf) {
      const std::vector<u32>& map = leaves[table_of_[i]];
      for (i64 k = 0; k < n; ++k) {
        const i64 t = !x.absolute ? low + k : x.place < 0 ? length + x.place : x.place - 1;
        if (t >= 0 && t < length) {
          out[k] = map[data.ids[(begin + t) * data.n_columns + x.column]];
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
      const u32* a = scratch.values[x.a].data() + (low - low_[x.a]);
      const u32* b = scratch.values[x.b].data() + (low + x.distance - low_[x.b]);
      for (i64 k = 0; k < n; ++k) pairs.prefetch(a[k], b[k]);
      for (i64 k = 0; k < n; ++k)
        if (a[k] != kNone && b[k] != kNone) out[k] = grow ? pairs.add(a[k], b[k]) : pairs.find(a[k], b[k]);
    }
  }
}

void TemplateEncoder::encode_range(const ColumnView& data, const LeafMaps& leaves, i64 begin, i64 end, bool grow,
                                   Attributes& state, Attributes& edge) {
  Scratch scratch;
  for (auto* x : {&scratch.values, &scratch.pads[0], &scratch.pads[1]}) x->resize(nodes_.size());
  const i64 tokens = data.offsets[end] - data.offsets[begin];
  state.ptr.reserve(state.ptr.size() + tokens);
  state.attr.reserve(state.attr.size() + tokens * templates_.size());
  std::vector<std::size_t> kinds[2];  // the templates of tokens, those of transitions
  for (std::size_t k = 0; k < templates_.size(); ++k) kinds[templates_[k].edge].push_back(k);
  struct Look {
    const u32* value;  // of the template at each token
    const u32* known;  // attribute of each value
    std::size_t size;
  };
  std::vector<Look> looks(templates_.size());
  std::vector<u32> found(templates_.size() + 1);
  for (i64 seq = begin; seq < end; ++seq) {
    run_nodes(data, leaves, seq, grow, scratch);
    const auto look = [&](std::size_t k) {
      const std::vector<u32>& known = vocabulary_.attribute[class_of_[k]];
      const u32* value = scratch.values[templates_[k].node].data() + templates_[k].offset - low_[templates_[k].node];
      looks[k] = {value, known.data(), known.size()};
    };
    for (std::size_t k = 0; k < templates_.size(); ++k) look(k);
    const i64 length = data.offsets[seq + 1] - data.offsets[seq];
    const auto add = [&](const std::vector<std::size_t>& templates, i64 t, Attributes& out) {
      u32 n = 0;
      for (std::size_t k : templates) {
        const u32 value = looks[k].value[t];
        u32 attribute = value < looks[k].size ? looks[k].known[value] : kNone;
        if (attribute == kNone && grow && value != kNone) {
          attribute = add_attribute(class_of_[k], value);
          for (std::size_t q : templates) look(q);  // tables may have moved
        }
        found[n] = attribute;
        n += attribute != kNone;
      }
      out.attr.insert(out.attr.end(), found.begin(), found.begin() + n);
      out.ptr.push_back(std::ssize(out.attr));
    };
    for (i64 t = 0; t < length; ++t) add(kinds[0], t, state);
    if (kinds[1].empty()) continue;
    for (i64 t = 0; t < length; ++t) {
      if (t > 0) add(kinds[1], t, edge);
      else edge.ptr.push_back(std::ssize(edge.attr));  // no transition leads into the first token
    }
  }
}

void TemplateEncoder::encode(const ColumnView& data, bool grow, const Threads& threads, Attributes& state,
                             Attributes& edge) {
  if (data.n_tokens() > 0 && data.n_columns < n_columns_)
    throw Error("the templates look at column " + std::to_string(n_columns_ - 1) + ", the data has only columns 0 to " +
                std::to_string(data.n_columns - 1));
  const LeafMaps leaves = map_leaves(data, grow, threads);
  const i64 n_seq = data.n_seq;
  if (grow || threads.count == 1) {
    encode_range(data, leaves, 0, n_seq, grow, state, edge);
  } else {
    const i64 n_tasks = std::min<i64>(n_seq, 4 * threads.count);
    std::vector<Attributes> states(n_tasks), edges(n_tasks);
    parallel_for(n_tasks, threads.count, threads.poll, [&](i64 k, int) {
      encode_range(data, leaves, n_seq * k / n_tasks, n_seq * (k + 1) / n_tasks, false, states[k], edges[k]);
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
        part = Attributes();
      }
    };
    join(states, state);
    join(edges, edge);
  }
}

// The number of a node's value, made of the texts of its leaves from left to right.
u32 TemplateEncoder::value_of(int node, const std::vector<std::string_view>& pieces, std::size_t& next) {
  const Node& x = nodes_[node];
  if (x.kind == Node::Kind::leaf) return vocabulary_.strings[table_of_[node]].add(pieces[next++]);
  if (x.kind != Node::Kind::join) return 0;
  const u32 a = value_of(x.a, pieces, next), b = value_of(x.b, pieces, next);
  return vocabulary_.pairs[table_of_[node]].add(a, b);
}

TemplateEncoder::Marks TemplateEncoder::learn(const StringTable& state, const StringTable& edge) {
  constexpr int kMostReadings = 4096;
  Marks marks{std::vector<u8>(state.size(), 0), std::vector<u8>(edge.size(), 0)};
  n_attributes_[0] = state.size();
  n_attributes_[1] = edge.size();
  for (int c = 0; c < n_classes(); ++c) {
    const Class& cls = classes_[c];
    std::vector<int> leaves;
    std::vector<std::string> between;
    const std::function<void(int)> collect = [&](int node) {
      const Node& x = nodes_[node];
      if (x.kind == Node::Kind::join) {
        collect(x.a);
        between.push_back(x.between);
        collect(x.b);
      } else {
        leaves.push_back(node);
      }
    };
    collect(cls.node);
    const StringTable& names = cls.edge ? edge : state;
    std::vector<std::string_view> pieces(leaves.size());
    for (u32 id = 0; id < names.size(); ++id) {
      std::string_view text = names[id];
      if (text.size() < cls.prefix.size() + cls.suffix.size() || !text.starts_with(cls.prefix) ||
          !text.ends_with(cls.suffix))
        continue;
      text = text.substr(cls.prefix.size(), text.size() - cls.prefix.size() - cls.suffix.size());
      int readings = 0;
      const auto add = [&] {
        if (++readings > kMostReadings)
          throw Error("the name '" + std::string(names[id]) + "' can be read in too many ways");
        std::size_t next = 0;
        attribute_of(c, value_of(cls.node, pieces, next)) = id;
        (cls.edge ? marks.edge : marks.state)[id] = 1;
      };
      const std::function<void(std::size_t, std::string_view)> split = [&](std::size_t k, std::string_view rest) {
        if (nodes_[leaves[k]].kind != Node::Kind::leaf) {
          if (rest.empty()) add();
          return;
        }
        const bool may_be_empty = nodes_[leaves[k]].command != Node::Command::none;
        if (k + 1 == leaves.size()) {
          pieces[k] = rest;
          if (may_be_empty || !rest.empty()) add();
          return;
        }
        for (std::size_t at = may_be_empty ? 0 : 1; at <= rest.size(); ++at) {
          at = rest.find(between[k], at);
          if (at == std::string_view::npos) break;
          if (at < rest.size() && continues(rest[at])) continue;
          pieces[k] = rest.substr(0, at);
          split(k + 1, rest.substr(at + between[k].size()));
        }
      };
      split(0, text);
    }
  }
  return marks;
}

std::string TemplateEncoder::text(const Class& c, u32 value) const {
  std::string out = c.prefix;
  append_value(out, c.node, value);
  out += c.suffix;
  return out;
}

// Calls f(class, value, attribute) for all of them.
template <class F>
void TemplateEncoder::each_attribute(F f) const {
  for (int c = 0; c < n_classes(); ++c)
    for (u32 v = 0; v < vocabulary_.attribute[c].size(); ++v)
      if (vocabulary_.attribute[c][v] != kNone) f(c, v, vocabulary_.attribute[c][v]);
}

std::vector<std::string> TemplateEncoder::names(bool edge) const {
  std::vector<std::string> out(n_attributes_[edge]);
  each_attribute([&](int c, u32 v, u32 a) {
    if (classes_[c].edge == edge) out[a] = text(classes_[c], v);
  });
  return out;
}

TemplateEncoder TemplateEncoder::pruned(const std::vector<u8>& keep_state, const std::vector<u8>& keep_edge) const {
  const std::vector<u8>* keep[2] = {&keep_state, &keep_edge};
  std::vector<u32> renumbered[2];
  TemplateEncoder out(nodes_, templates_, pad_);
  for (int kind = 0; kind < 2; ++kind) {
    if (keep[kind]->size() != n_attributes_[kind]) throw Error("the marks of what to keep have the wrong size");
    for (u8 kept : *keep[kind]) renumbered[kind].push_back(kept ? out.n_attributes_[kind]++ : kNone);
  }
  // which values of each node are still needed, from the templates down to the leaves
  std::vector<std::vector<u8>> needed(nodes_.size());
  for (int i = 0; i < n_nodes(); ++i) needed[i].assign(n_values(i), 0);
  each_attribute([&](int c, u32 v, u32 a) {
    if (renumbered[classes_[c].edge][a] != kNone) needed[classes_[c].node][v] = 1;
  });
  for (int i = n_nodes(); i-- > 0;) {
    if (nodes_[i].kind != Node::Kind::join) continue;
    const PairTable& pairs = vocabulary_.pairs[table_of_[i]];
    for (u32 v = 0; v < pairs.size(); ++v)
      if (needed[i][v]) needed[nodes_[i].a][pairs.first(v)] = needed[nodes_[i].b][pairs.second(v)] = 1;
  }
  Vocabulary vocabulary;
  vocabulary.strings.resize(vocabulary_.strings.size());
  vocabulary.pairs.resize(vocabulary_.pairs.size());
  vocabulary.attribute.resize(classes_.size());
  std::vector<std::vector<u32>> value(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    value[i].assign(needed[i].size(), kNone);
    for (u32 v = 0; v < needed[i].size(); ++v) {
      if (!needed[i][v]) continue;
      if (nodes_[i].kind == Node::Kind::leaf) {
        value[i][v] = vocabulary.strings[table_of_[i]].add(vocabulary_.strings[table_of_[i]][v]);
      } else if (nodes_[i].kind == Node::Kind::join) {
        const PairTable& pairs = vocabulary_.pairs[table_of_[i]];
        value[i][v] =
            vocabulary.pairs[table_of_[i]].add(value[nodes_[i].a][pairs.first(v)], value[nodes_[i].b][pairs.second(v)]);
      } else {
        value[i][v] = 0;
      }
    }
  }
  each_attribute([&](int c, u32 v, u32 a) {
    if (renumbered[classes_[c].edge][a] == kNone) return;
    const u32 to = value[classes_[c].node][v];
    if (to >= vocabulary.attribute[c].size()) vocabulary.attribute[c].resize(to + 1, kNone);
    vocabulary.attribute[c][to] = renumbered[classes_[c].edge][a];
  });
  const u32 n_state = out.n_attributes_[0], n_edge = out.n_attributes_[1];
  out.restore(std::move(vocabulary), n_state, n_edge);
  return out;
}

void TemplateEncoder::restore(Vocabulary vocabulary, u32 n_state, u32 n_edge) {
  const auto fail = [] { throw Error("the model's vocabulary does not fit its templates"); };
  if (vocabulary.strings.size() != vocabulary_.strings.size() || vocabulary.pairs.size() != vocabulary_.pairs.size() ||
      vocabulary.attribute.size() != classes_.size())
    fail();
  vocabulary_ = std::move(vocabulary);
  n_attributes_[0] = n_state;
  n_attributes_[1] = n_edge;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].kind != Node::Kind::join) continue;
    const PairTable& pairs = vocabulary_.pairs[table_of_[i]];
    for (u32 v = 0; v < pairs.size(); ++v)
      if (pairs.first(v) >= n_values(nodes_[i].a) || pairs.second(v) >= n_values(nodes_[i].b)) fail();
  }
  for (StringTable& table : by_name_) table = StringTable();
  for (auto& named : named_) named.clear();
  std::vector<u8> used[2] = {std::vector<u8>(n_state, 0), std::vector<u8>(n_edge, 0)};
  each_attribute([&](int c, u32 v, u32 a) {
    const Class& cls = classes_[c];
    if (v >= n_values(cls.node) || a >= n_attributes_[cls.edge]) fail();
    used[cls.edge][a] = 1;
    if (cls.same_text < 0) return;
    std::string value;
    append_value(value, cls.node, v);
    if (by_name_[cls.same_text].add(value) == named_[cls.same_text].size()) named_[cls.same_text].push_back(a);
  });
  for (int c = 0; c < n_classes(); ++c) {
    auto& of_value = vocabulary_.attribute[c];
    of_value.resize(std::min<std::size_t>(of_value.size(), n_values(classes_[c].node)));
  }
  for (const auto& marks : used)
    if (std::find(marks.begin(), marks.end(), u8{0}) != marks.end()) fail();
}

}  // namespace crfkit
