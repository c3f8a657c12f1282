#include "segment/best.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

namespace crfkit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Segments of one label that are longer than the table. The score of a length is concave there: once a later beginning
// is as good as an earlier one, it stays so, and the earlier one can go.
class LongSegments {
 public:
  LongSegments(const SegmentTables& tables, i64 j) : tables_(tables), j_(j) {}
  void clear() { open_.clear(); }
  // All that is open goes on with a token.
  void extend(double u) {
    for (Open& x : open_) x.score += u;
  }
  void open(i64 first, double score) { open_.push_back({first, score}); }
  // The best of those that end with t.
  double best(i64 t) {
    double best = -kInf;
    std::size_t kept = open_.size();
    for (std::size_t i = open_.size(); i-- > 0;) {  // latest first
      const double score = open_[i].score + tables_.length(t - open_[i].first + 1, j_);
      if (!(score > best)) continue;
      best = score;
      open_[--kept] = open_[i];
    }
    open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(kept));
    return best;
  }

 private:
  struct Open {
    i64 first;
    double score;
  };
  const SegmentTables& tables_;
  const i64 j_;
  std::vector<Open> open_;
};

}  // namespace

void best_forward(const SegmentTables& tables, const SegmentScores& x, BestScores& out) {
  const i64 n = tables.n_labels, most = tables.max_length;
  for (auto* m : {&out.v, &out.g}) m->assign(x.steps * n, -kInf);
  std::vector<double> run(n);
  std::vector<LongSegments> longer;
  for (i64 j = 0; j < n && tables.tail_order; ++j) longer.emplace_back(tables, j);
  // recursion: viterbi
  for (i64 t = 0; t < x.steps; ++t) {
    double *g = out.g.data() + t * n, *v = out.v.data() + t * n;
    if (t == 0) {
      std::copy_n(x.begin.data(), n, g);
    } else if (x.may_begin(t)) {
      for (i64 i = 0; i < n; ++i) {
        const double before = v[i - n];
        const double* pair = tables.pairwise.data() + i * n;
        for (i64 j = 0; j < n; ++j) g[j] = std::max(g[j], before + pair[j]);
      }
      for (i64 j = 0; j < n; ++j) g[j] += x.begin[t * n + j];
    }
    std::fill(run.begin(), run.end(), 0.0);
    i64 item = x.item_ptr[t];
    bool whole = false;  // whether a segment may have all of the table's length
    for (i64 k = 1; k <= std::min(most, t + 1); ++k) {
      const i64 first = t - k + 1;
      const double *u = x.u.data() + first * n, *length = tables.lengths.data() + (k - 1) * n;
      for (i64 j = 0; j < n; ++j) run[j] += u[j];
      if (item < x.item_ptr[t + 1] && x.item_length[item] == k) {
        const double* score = x.item_score.data() + item++ * n;
        for (i64 j = 0; j < n; ++j) v[j] = std::max(v[j], out.g[first * n + j] + run[j] + (length[j] + score[j]));
      } else {
        for (i64 j = 0; j < n; ++j) v[j] = std::max(v[j], out.g[first * n + j] + run[j] + length[j]);
      }
      whole = k == most;
      if (!x.may_cross(first)) break;
    }
    for (i64 j = 0; j < n; ++j) {
      if (tables.tail_order) {
        LongSegments& open = longer[j];
        if (!x.may_cross(t)) open.clear();
        open.extend(x.u[t * n + j]);
        v[j] = std::max(v[j], open.best(t));
        // what has all of the table's length now may be longer at the next token
        if (whole) open.open(t - most + 1, out.g[(t - most + 1) * n + j] + run[j]);
      }
      v[j] += x.end[t * n + j];
    }
  }
}

// Goes back from the last token, best first: a part is a segment with all that follow it, and what it loses against
// the best segmentation. Among equals, what was found first.
std::vector<Segmentation> best_of(const SegmentTables& tables, const SegmentScores& x, i64 k) {
  struct Part {
    double loss;
    i64 end, next, first;  // a segment of `label` from first to end; next: the part that this one was put in front of
    i32 label;
  };
  const i64 n = tables.n_labels;
  std::vector<Segmentation> out;
  if (x.steps == 0) return {Segmentation{}};
  BestScores best;
  best_forward(tables, x, best);
  std::vector<Part> parts;
  const auto later = [&](i64 a, i64 b) {
    return parts[a].loss != parts[b].loss ? parts[a].loss > parts[b].loss : a > b;
  };
  std::priority_queue<i64, std::vector<i64>, decltype(later)> open(later);
  struct Choice {
    double score;
    i64 first;
    i32 label;
  };
  std::vector<Choice> choices;
  // Puts a segment that ends with t in front of a part; with one path asked for, the best only.
  const auto extend = [&](i64 t, i64 next) {
    choices.clear();
    for (i64 j = 0; j < n; ++j) {
      const double after = next < 0 ? 0.0 : tables.pairwise[j * n + parts[next].label];
      if (!(best.v[t * n + j] + after > -kInf)) continue;
      each_length(tables, x, best.g, t, j, [&](i64 length, double score) {
        if (score + after > -kInf) choices.push_back({score + after, t - length + 1, static_cast<i32>(j)});
      });
    }
    if (choices.empty()) return;
    const auto lower = [](const Choice& a, const Choice& b) { return a.score < b.score; };
    const Choice top = *std::max_element(choices.begin(), choices.end(), lower);
    const double loss = next < 0 ? 0.0 : parts[next].loss;
    const auto push = [&](const Choice& c) {
      parts.push_back({loss + (top.score - c.score), t, next, c.first, c.label});
      open.push(std::ssize(parts) - 1);
    };
    if (k == 1) return push(top);
    // no segmentation needs more than the k best of the choices
    if (std::ssize(choices) > k) {
      std::nth_element(choices.begin(), choices.begin() + k, choices.end(),
                       [&](const Choice& a, const Choice& b) { return lower(b, a); });
      choices.resize(k);
    }
    for (const Choice& c : choices) push(c);
  };
  for (extend(x.steps - 1, -1); !open.empty() && std::ssize(out) < k;) {
    const i64 at = open.top();
    open.pop();
    if (parts[at].first > 0) {
      extend(parts[at].first - 1, at);
      continue;
    }
    Segmentation found;
    for (i64 p = at; p >= 0; p = parts[p].next) {
      const i64 j = parts[p].label, length = parts[p].end - parts[p].first + 1, last = parts[p].end;
      if (!found.label.empty()) found.score += tables.pairwise[found.label.back() * n + j];
      found.score += x.begin[parts[p].first * n + j] + x.end[last * n + j] + tables.length(length, j);
      for (i64 t = parts[p].first; t <= last; ++t) found.score += x.u[t * n + j];
      if (const double* item = x.item(last, length, n)) found.score += item[j];
      found.end.push_back(last + 1);
      found.label.push_back(parts[p].label);
    }
    out.push_back(std::move(found));
  }
  return out;
}

}  // namespace crfkit
