// The names of attributes: values from the texts of names, texts of values, and encoders made of some of the
// attributes.
#include <algorithm>
#include <functional>
#include <tuple>

#include "text/encoder.hpp"

namespace crfkit {
namespace {

// Bytes of all names, for each byte of the tables they are made of, and whatever the tables.
constexpr u64 kTextPerByte = 32, kTextAnyway = u64{1} << 26;

std::string shown(std::string_view s) {
  std::size_t n = std::min<std::size_t>(s.size(), 60);
  while (n < s.size() && continues(s[n])) --n;
  return "'" + std::string(s.substr(0, n)) + (n < s.size() ? "...'" : "'");
}

// All ways to read a text as pieces with given texts between them. A table says first from where the rest can be read,
// so that nothing is tried in vain.
class Readings {
 public:
  static constexpr std::size_t kMostCells = std::size_t{1} << 26;
  struct Piece {
    bool may_be_empty;
    std::string between;  // this one and the next
  };
  std::vector<Piece> pieces;

  // The steps that a text of this size takes.
  u64 cost(std::size_t size) const {
    u64 cells = 1;
    for (std::size_t k = 0; k + 1 < pieces.size(); ++k) cells += (size + 1) * (1 + pieces[k].between.size() / 16);
    return cells;
  }

  // Calls f(the pieces' texts) for each.
  void each(std::string_view text, FunctionRef<void(const std::vector<std::string_view>&)> f) {
    if ((pieces.size() - 1) * (text.size() + 1) > kMostCells)
      throw Error("a name of " + std::to_string(text.size()) + " bytes is too long to be read as " +
                  std::to_string(pieces.size()) + " pieces");
    text_ = text;
    next_.assign((pieces.size() - 1) * (text.size() + 1), kNone);
    for (std::size_t k = pieces.size() - 1; k-- > 0;) {
      const std::string& between = pieces[k].between;
      for (std::size_t at = text.size() + 1; at-- > 0;) {
        const bool good = text.substr(at).starts_with(between) && !(at < text.size() && continues(text[at])) &&
                          readable(k + 1, at + between.size());
        if (good) cell(k, at) = static_cast<u32>(at);
        else if (at < text.size()) cell(k, at) = cell(k, at + 1);
      }
    }
    texts_.resize(pieces.size());
    if (readable(0, 0)) split(0, 0, f);
  }

 private:
  // where the text between piece k and the next stands first, from this place on, if the rest can be read after it
  u32& cell(std::size_t k, std::size_t at) { return next_[k * (text_.size() + 1) + at]; }
  u32 next(std::size_t k, std::size_t at) { return at <= text_.size() ? cell(k, at) : kNone; }
  bool readable(std::size_t k, std::size_t from) {
    const std::size_t least = from + !pieces[k].may_be_empty;
    return k + 1 == pieces.size() ? least <= text_.size() : next(k, least) != kNone;
  }
  void split(std::size_t k, std::size_t from, FunctionRef<void(const std::vector<std::string_view>&)> f) {
    if (k + 1 == pieces.size()) {
      texts_[k] = text_.substr(from);
      return f(texts_);
    }
    for (u32 at = next(k, from + !pieces[k].may_be_empty); at != kNone; at = next(k, at + std::size_t{1})) {
      texts_[k] = text_.substr(from, at - from);
      split(k + 1, at + pieces[k].between.size(), f);
    }
  }

  std::string_view text_;
  std::vector<u32> next_;  // [pieces - 1][bytes + 1]
  std::vector<std::string_view> texts_;
};

// What reading names may cost in all: steps, pieces that are found, and their texts.
class Budget {
 public:
  Budget(u64 bytes, const Poll& poll)
      : steps_((u64{1} << 30) + 16 * bytes),
        pieces_((u64{1} << 23) + 2 * bytes),
        texts_((u64{1} << 27) + 16 * bytes),
        watch_(&poll) {}
  void spend(u64 steps, u64 pieces = 0, u64 texts = 0) {
    if (steps > steps_ || pieces > pieces_ || texts > texts_)
      throw Error("the templates can be read out of the names in too many ways");
    watch_.spend(steps + texts);
    steps_ -= steps;
    pieces_ -= pieces;
    texts_ -= texts;
  }

 private:
  u64 steps_, pieces_, texts_;
  Watch watch_;
};

}  // namespace

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

void TemplateEncoder::append_leaves(std::string& out, int node, u32 value) const {
  const Node& x = nodes_[node];
  if (x.kind == Node::Kind::join) {
    const PairTable& pairs = vocabulary_.pairs[table_of_[node]];
    append_leaves(out, x.a, pairs.first(value));
    append_leaves(out, x.b, pairs.second(value));
  } else if (x.kind == Node::Kind::leaf) {
    const std::string_view text = vocabulary_.strings[table_of_[node]][value];
    out.append(std::to_string(text.size())).append(1, ' ').append(text);
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

TemplateEncoder::Marks TemplateEncoder::learn(const StringTable& state, const StringTable& edge, const Poll& poll) {
  constexpr int kMostReadings = 4096;
  Marks marks{std::vector<u8>(state.size(), 0), std::vector<u8>(edge.size(), 0)};
  n_attributes_[0] = state.size();
  n_attributes_[1] = edge.size();
  Budget budget(state.bytes().size() + edge.bytes().size(), poll);
  for (int c = 0; c < n_classes(); ++c) {
    const Class& cls = classes_[c];
    Readings readings;
    const std::function<void(int)> collect = [&](int node) {
      const Node& x = nodes_[node];
      if (x.kind == Node::Kind::join) {
        collect(x.a);
        readings.pieces.back().between = x.between;
        collect(x.b);
      } else {
        readings.pieces.push_back({x.command != Node::Command::none, ""});
      }
    };
    collect(cls.node);
    const bool mark = nodes_[cls.node].kind != Node::Kind::leaf && nodes_[cls.node].kind != Node::Kind::join;
    const StringTable& names = cls.edge ? edge : state;
    for (u32 id = 0; id < names.size(); ++id) {
      budget.spend(1);
      std::string_view text = names[id];
      if (text.size() < cls.prefix.size() + cls.suffix.size() || !text.starts_with(cls.prefix) ||
          !text.ends_with(cls.suffix))
        continue;
      text = text.substr(cls.prefix.size(), text.size() - cls.prefix.size() - cls.suffix.size());
      int count = 0;
      const auto add = [&](const std::vector<std::string_view>& pieces) {
        if (++count > kMostReadings) throw Error("the name " + shown(names[id]) + " can be read in too many ways");
        budget.spend(pieces.size(), pieces.size(), text.size());
        std::size_t next = 0;
        attribute_of(c, value_of(cls.node, pieces, next)) = id;
        (cls.edge ? marks.edge : marks.state)[id] = 1;
      };
      if (!mark) {
        budget.spend(readings.cost(text.size()));
        readings.each(text, add);
      } else if (text.empty()) {
        add({});
      }
    }
  }
  names_known_ = false;
  return marks;
}

std::string TemplateEncoder::text(const Class& c, u32 value) const {
  std::string out = c.prefix;
  append_value(out, c.node, value);
  out += c.suffix;
  return out;
}

// Throws if the names of all attributes would take more memory than tables of this size account for.
void TemplateEncoder::check_text() const {
  u64 tables = 0, total = 0;
  for (const StringTable& x : vocabulary_.strings) tables += x.bytes().size() + 8 * x.ends().size();
  for (const PairTable& x : vocabulary_.pairs) tables += u64{8} * x.size();
  for (const auto& x : vocabulary_.attribute) tables += 4 * x.size();
  const u64 most = kTextAnyway + kTextPerByte * tables;
  std::vector<std::vector<u64>> size(nodes_.size());  // [nodes][values]: bytes of each value's text
  for (int i = 0; i < n_nodes(); ++i) {
    const Node& x = nodes_[i];
    if (same_[i] != i) continue;
    size[i].assign(n_values(i), 0);
    for (u32 v = 0; v < size[i].size() && x.kind == Node::Kind::leaf; ++v)
      size[i][v] = vocabulary_.strings[table_of_[i]][v].size();
    if (x.kind != Node::Kind::join) continue;
    const PairTable& pairs = vocabulary_.pairs[table_of_[i]];
    for (u32 v = 0; v < size[i].size(); ++v)
      size[i][v] = size[same_[x.a]][pairs.first(v)] + x.between.size() + size[same_[x.b]][pairs.second(v)];
  }
  each_attribute([&](int c, u32 v, u32) {
    total += classes_[c].prefix.size() + size[same_[classes_[c].node]][v] + classes_[c].suffix.size();
    if (total > most)
      throw Error("the names of the attributes take more than " + std::to_string(most) +
                  " bytes: its templates repeat long texts too often");
  });
}

// What add_attribute needs to know of attributes that did not come from it.
void TemplateEncoder::know_names() {
  if (names_known_) return;
  names_known_ = true;
  if (by_name_.empty()) return;
  collect_names(by_name_, named_);
}

void TemplateEncoder::collect_names(std::vector<StringTable>& by_name, std::vector<std::vector<u32>>& named) const {
  check_text();
  std::string value;
  each_attribute([&](int c, u32 v, u32 a) {
    const Class& cls = classes_[c];
    if (cls.same_text < 0) return;
    value.clear();
    append_value(value, cls.node, v);
    if (by_name[cls.same_text].add(value) == named[cls.same_text].size()) named[cls.same_text].push_back(a);
  });
}

std::vector<std::string> TemplateEncoder::names(bool edge) const {
  check_text();
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
  Vocabulary vocabulary;
  vocabulary.strings.resize(vocabulary_.strings.size());
  vocabulary.pairs.resize(vocabulary_.pairs.size());
  vocabulary.attribute.resize(classes_.size());
  // the values that are still needed get new numbers, in the order in which the attributes need them
  std::vector<std::vector<u32>> value(nodes_.size());
  for (int i = 0; i < n_nodes(); ++i) value[i].assign(n_values(i), kNone);
  const auto take = [&](const auto& self, int node, u32 v) -> u32 {
    const Node& x = nodes_[node];
    u32& to = value[node][v];
    if (to != kNone) return to;
    if (x.kind == Node::Kind::leaf) {
      to = vocabulary.strings[table_of_[node]].add(vocabulary_.strings[table_of_[node]][v]);
    } else if (x.kind == Node::Kind::join) {
      const PairTable& pairs = vocabulary_.pairs[table_of_[node]];
      const u32 a = self(self, x.a, pairs.first(v)), b = self(self, x.b, pairs.second(v));
      to = vocabulary.pairs[table_of_[node]].add(a, b);
    } else {
      to = 0;
    }
    return to;
  };
  std::vector<std::pair<int, u32>> places[2];            // of each attribute that stays: a class and its value
  std::vector<std::tuple<bool, u32, int, u32>> several;  // and where there may be several
  for (const bool edge : {false, true}) places[edge].resize(out.n_attributes_[edge], {-1, 0});
  each_attribute([&](int c, u32 v, u32 a) {
    const bool edge = classes_[c].edge;
    const u32 to = renumbered[edge][a];
    if (to == kNone) return;
    if (classes_[c].same_text < 0) places[edge][to] = {c, v};
    else several.push_back({edge, to, c, v});
  });
  for (const auto& of_kind : places)
    for (const auto& [c, v] : of_kind)
      if (c >= 0) take(take, classes_[c].node, v);
  std::string leaves[2];
  std::sort(several.begin(), several.end(), [&](const auto& x, const auto& y) {
    const auto place = [](const auto& z) { return std::tie(std::get<0>(z), std::get<1>(z), std::get<2>(z)); };
    if (place(x) != place(y)) return place(x) < place(y);
    for (std::string& s : leaves) s.clear();  // values of one template with one name, which are few: by their leaves
    append_leaves(leaves[0], classes_[std::get<2>(x)].node, std::get<3>(x));
    append_leaves(leaves[1], classes_[std::get<2>(y)].node, std::get<3>(y));
    return leaves[0] < leaves[1];
  });
  for (const auto& [edge, to, c, v] : several) take(take, classes_[c].node, v);
  each_attribute([&](int c, u32 v, u32 a) {
    if (renumbered[classes_[c].edge][a] == kNone) return;
    const u32 to = take(take, classes_[c].node, v);
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
  const u32 n_attributes[2] = {n_state, n_edge};
  for (const bool edge : {false, true}) {
    std::size_t most = 0;
    for (int c = 0; c < n_classes(); ++c)
      if (classes_[c].edge == edge) most += vocabulary.attribute[c].size();
    if (n_attributes[edge] > most)
      throw Error("n_attributes is " + std::to_string(n_attributes[edge]) + ", but the vocabulary has at most " +
                  std::to_string(most));
  }
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
  names_known_ = false;
  std::vector<u8> used[2] = {std::vector<u8>(n_state, 0), std::vector<u8>(n_edge, 0)};
  each_attribute([&](int c, u32 v, u32 a) {
    const Class& cls = classes_[c];
    if (v >= n_values(cls.node) || a >= n_attributes_[cls.edge]) fail();
    used[cls.edge][a] = 1;
  });
  for (int c = 0; c < n_classes(); ++c) {
    auto& of_value = vocabulary_.attribute[c];
    of_value.resize(std::min<std::size_t>(of_value.size(), n_values(classes_[c].node)));
  }
  for (const auto& marks : used)
    if (std::find(marks.begin(), marks.end(), u8{0}) != marks.end()) fail();
}

}  // namespace crfkit
