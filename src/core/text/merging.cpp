// merging.cpp: attributes of several encoders with the same templates: what they have in common, and one of them all.
#include <algorithm>

#include "text/encoder.hpp"

namespace crfkit {

u64 TemplateEncoder::memory() const {
  u64 total = 0;
  for (const StringTable& x : vocabulary_.strings) total += x.memory();
  for (const PairTable& x : vocabulary_.pairs) total += x.memory();
  for (const auto& x : vocabulary_.attribute) total += 4 * x.capacity();
  for (const StringTable& x : by_name_) total += x.memory();
  for (const auto& x : named_) total += 4 * x.capacity();
  return total;
}

std::vector<Key> TemplateEncoder::keys(bool edge, u64 seed) const {
  const KeyMaker make(seed);
  std::vector<std::vector<Key>> value(nodes_.size());  // of nodes that have a table of their own
  for (int i = 0; i < n_nodes(); ++i) {
    const Node& x = nodes_[i];
    if (same_[i] != i) continue;
    value[i].resize(n_values(i));
    for (u32 v = 0; v < value[i].size(); ++v) {
      if (x.kind == Node::Kind::leaf) {
        value[i][v] = make.of(vocabulary_.strings[table_of_[i]][v]);
      } else if (x.kind == Node::Kind::join) {
        const PairTable& pairs = vocabulary_.pairs[table_of_[i]];
        value[i][v] = make.of(value[same_[x.a]][pairs.first(v)], value[same_[x.b]][pairs.second(v)]);
      }
    }
  }
  std::vector<Key> out(n_attributes_[edge]);
  std::string text;
  each_attribute([&](int c, u32 v, u32 a) {
    const Class& cls = classes_[c];
    if (cls.edge != edge) return;
    if (cls.same_text < 0) {
      out[a] = make.of(value[same_[cls.node]][v], u64{2} * c);
    } else {
      text.clear();
      append_value(text, cls.node, v);
      out[a] = make.of(make.of(text), u64{2} * cls.same_text + 1);
    }
  });
  return out;
}

TemplateEncoder::Numbers TemplateEncoder::translate(const TemplateEncoder& other) const {
  Numbers out{std::vector<u32>(other.n_attributes_[0], kNone), std::vector<u32>(other.n_attributes_[1], kNone)};
  std::vector<std::vector<u32>> value(nodes_.size());  // here, of the other's values
  for (int i = 0; i < n_nodes(); ++i) {
    const Node& x = nodes_[i];
    value[i].assign(other.n_values(i), x.kind == Node::Kind::leaf || x.kind == Node::Kind::join ? kNone : 0);
    for (u32 v = 0; v < value[i].size(); ++v) {
      if (x.kind == Node::Kind::leaf) {
        value[i][v] = vocabulary_.strings[table_of_[i]].find(other.vocabulary_.strings[table_of_[i]][v]);
      } else if (x.kind == Node::Kind::join) {
        const PairTable& pairs = other.vocabulary_.pairs[table_of_[i]];
        const u32 a = value[x.a][pairs.first(v)], b = value[x.b][pairs.second(v)];
        if (a != kNone && b != kNone) value[i][v] = vocabulary_.pairs[table_of_[i]].find(a, b);
      }
    }
  }
  std::vector<StringTable> by_name(by_name_.size());  // attributes that may have several values
  std::vector<std::vector<u32>> named(named_.size());
  if (shares_names()) {
    collect_names(by_name, named);
    other.check_text();
  }
  std::string name;
  other.each_attribute([&](int c, u32 v, u32 a) {
    if (const int group = classes_[c].same_text; group >= 0) {
      name.clear();
      other.append_value(name, other.classes_[c].node, v);
      const u32 found = by_name[group].find(name);
      if (found != kNone) (classes_[c].edge ? out.edge : out.state)[a] = named[group][found];
      return;
    }
    const u32 to = value[classes_[c].node][v];
    if (to < vocabulary_.attribute[c].size() && vocabulary_.attribute[c][to] != kNone)
      (classes_[c].edge ? out.edge : out.state)[a] = vocabulary_.attribute[c][to];
  });
  return out;
}

TemplateEncoder::Numbers TemplateEncoder::absorb(const TemplateEncoder& other) {
  if (other.classes_.size() != classes_.size() || other.table_of_ != table_of_)
    throw Error("encoders of different templates have no attributes in common");
  know_names();
  std::vector<std::vector<u32>> value(nodes_.size());  // here, of the other's values
  for (int i = 0; i < n_nodes(); ++i) {
    const Node& x = nodes_[i];
    value[i].assign(other.n_values(i), 0);
    for (u32 v = 0; v < value[i].size(); ++v) {
      if (x.kind == Node::Kind::leaf) {
        value[i][v] = vocabulary_.strings[table_of_[i]].add(other.vocabulary_.strings[table_of_[i]][v]);
      } else if (x.kind == Node::Kind::join) {
        const PairTable& pairs = other.vocabulary_.pairs[table_of_[i]];
        value[i][v] = vocabulary_.pairs[table_of_[i]].add(value[x.a][pairs.first(v)], value[x.b][pairs.second(v)]);
      }
    }
  }
  struct Place {
    int cls;
    u32 value, attribute;
  };
  std::vector<Place> places;
  other.each_attribute([&](int c, u32 v, u32 a) { places.push_back({c, v, a}); });
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& x, const Place& y) { return x.attribute < y.attribute; });
  Numbers out{std::vector<u32>(other.n_attributes_[0], kNone), std::vector<u32>(other.n_attributes_[1], kNone)};
  for (const Place& at : places)
    (classes_[at.cls].edge ? out.edge : out.state)[at.attribute] =
        add_attribute(at.cls, value[classes_[at.cls].node][at.value]);
  return out;
}

void TemplateEncoder::adopt(const Flat& other, std::span<const u32> state, std::span<const u32> edge) {
  const auto check = [](bool good) {
    if (!good) throw Error("a vocabulary does not fit its templates");
  };
  check(other.strings.size() == vocabulary_.strings.size() && other.pairs.size() == vocabulary_.pairs.size() &&
        other.attribute.size() == classes_.size());
  const auto n_of = [&](int i) -> u64 {
    const Node& x = nodes_[i];
    return x.kind == Node::Kind::leaf   ? other.strings[table_of_[i]].ends.size()
           : x.kind == Node::Kind::join ? other.pairs[table_of_[i]].size() / 2
                                        : 1;
  };
  const auto each = [&](auto f) {
    for (int c = 0; c < n_classes(); ++c) {
      const std::span<const u32> numbers = classes_[c].edge ? edge : state, of_value = other.attribute[c];
      for (u32 v = 0; v < of_value.size(); ++v) {
        if (of_value[v] == kNone) continue;
        check(of_value[v] < numbers.size() && v < n_of(classes_[c].node));
        if (numbers[of_value[v]] != kNone) f(c, v, numbers[of_value[v]]);
      }
    }
  };
  // the values that are needed, from the templates down to the leaves; then their numbers here, from the leaves up
  constexpr u32 kNeeded = kNone - 1;
  std::vector<std::vector<u32>> value(nodes_.size());
  for (int i = 0; i < n_nodes(); ++i) value[i].assign(n_of(i), kNone);
  each([&](int c, u32 v, u32) { value[classes_[c].node][v] = kNeeded; });
  for (int i = n_nodes(); i-- > 0;) {
    if (nodes_[i].kind != Node::Kind::join) continue;
    const std::span<const u32> pairs = other.pairs[table_of_[i]];
    for (u64 v = 0; v < value[i].size(); ++v) {
      if (value[i][v] == kNone) continue;
      check(pairs[2 * v] < value[nodes_[i].a].size() && pairs[2 * v + 1] < value[nodes_[i].b].size());
      value[nodes_[i].a][pairs[2 * v]] = value[nodes_[i].b][pairs[2 * v + 1]] = kNeeded;
    }
  }
  for (int i = 0; i < n_nodes(); ++i) {
    const Node& x = nodes_[i];
    for (u64 v = 0; v < value[i].size(); ++v) {
      u32& to = value[i][v];
      if (to == kNone) continue;
      if (x.kind == Node::Kind::leaf) {
        const Flat::Strings& strings = other.strings[table_of_[i]];
        const u64 begin = v == 0 ? 0 : strings.ends[v - 1];
        check(begin <= strings.ends[v] && strings.ends[v] <= strings.bytes.size());
        to = vocabulary_.strings[table_of_[i]].add(strings.bytes.substr(begin, strings.ends[v] - begin));
      } else if (x.kind == Node::Kind::join) {
        const std::span<const u32> pairs = other.pairs[table_of_[i]];
        to = vocabulary_.pairs[table_of_[i]].add(value[x.a][pairs[2 * v]], value[x.b][pairs[2 * v + 1]]);
      } else {
        to = 0;
      }
    }
  }
  each([&](int c, u32 v, u32 number) {
    attribute_of(c, value[classes_[c].node][v]) = number;
    n_attributes_[classes_[c].edge] = std::max(n_attributes_[classes_[c].edge], number + 1);
  });
  names_known_ = false;
}

}  // namespace crfkit
