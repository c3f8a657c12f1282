// brown.cpp: losses of all merges, kept up to date as words come in and classes merge.
//
// With h(x) = x log x and g(x, y) = h(x + y) - h(x) - h(y), merging classes i and j loses
//
//   g(left_i, left_j) + g(right_i, right_j) - sum_b g(c_ib, c_jb) - sum_a g(c_ai, c_aj)        (times 1 / tokens)
//
// of mutual information, where c are the counts of bigrams of classes, left and right their sums, and the cells among i
// and j, which become one, are put right by `block`. g is zero where either is, so that a word with few neighbours
// changes few terms: it comes in, or goes into a class, in O(neighbours * classes) instead of O(classes^2).
//
// h is rounded to whole numbers after scaling. All sums are then exact, in any order, and never drift.
#include "words/brown.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/thread_phases.hpp"

namespace crfkit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr i64 kTasks = 16;      // rows r with r % kTasks equal are one task
constexpr i64 kAlone = 30'000;  // fewer terms than this are not worth waking threads

// x log x in whole numbers.
class Entropy {
 public:
  explicit Entropy(i64 total) {
    const double most = 8 * std::max(2.0, static_cast<double>(total)) * std::log(std::max(2.0, double(total)));
    scale_ = std::exp2(std::min(24.0, std::floor(52 - std::log2(most))));
    for (i64 x = 0; x < kTable; ++x) table_.push_back(exactly(x));
  }
  double operator()(i64 x) const { return x < kTable ? table_[x] : exactly(x); }
  double scale() const { return scale_; }

 private:
  static constexpr i64 kTable = 1 << 15;
  double exactly(i64 x) const {
    const double y = static_cast<double>(x);
    return x < 2 ? 0.0 : std::nearbyint(y * std::log(y) * scale_);
  }
  double scale_;
  std::vector<double> table_;
};

// A class's counts with all others on one side, and where they are not zero.
struct Side {
  std::vector<i32> count;  // [slots]
  std::vector<int> at;
};

class Window {
 public:
  Window(const Bigrams& after, int n_classes, const Threads& threads)
      : after_(after),
        before_(turned(after)),
        h_(std::accumulate(after.count.begin(), after.count.end(), i64{0})),
        slots_(n_classes + 1),
        threads_(threads),
        workers_{threads.count, {}},
        phases_(workers_, {kTasks, kTasks}, [this](i64, i64 task) { (*job_)(task); }) {
    const std::size_t n = slots_;
    for (auto& m : follow_) m.assign(n * n, 0);
    for (auto& m : sum_) m.assign(n, 0);
    for (auto& m : h_sum_) m.assign(n, 0.0);
    loss_.assign(n * (n + 1) / 2, kInfinity);
    least_.assign(n, kInfinity);
    least_at_.assign(n, 0);
    active_.assign(n, 0);
    gain_.assign(n, 0.0);
    first_word_.assign(n, 0);
    slot_.assign(after.size(), -1);
    words_.resize(n);
  }

  // A word becomes a class of its own, in a free slot.
  void insert(u32 word, int slot) {
    if (threads_.poll) threads_.poll();
    settle();
    slot_[word] = slot;
    first_word_[slot] = word;
    words_[slot].assign(1, word);
    i64 itself = 0;
    for (int side = 0; side < 2; ++side) collect(side == 0 ? after_ : before_, word, slot, fresh_[side], itself);
    // sums of the neighbours: those after the word gain on their left, and the other way round
    for (int side = 0; side < 2; ++side) {
      old_sum_[side] = sum_[side];
      old_h_[side] = h_sum_[side];
      for (const int i : fresh_[1 - side].at) set_sum(side, i, sum_[side][i] + fresh_[1 - side].count[i]);
    }
    each_row([&](i64 r) { add_context(static_cast<int>(r)); }, terms(fresh_[0]) + terms(fresh_[1]));
    for (int side = 0; side < 2; ++side) {
      i64 total = itself;
      for (const int i : fresh_[side].at) {
        const i32 c = fresh_[side].count[i];
        cell(side, slot, i) = cell(1 - side, i, slot) = c;
        total += c;
      }
      cell(side, slot, slot) = static_cast<i32>(itself);
      set_sum(side, slot, total);
    }
    active_[slot] = 1;
    std::fill(gain_.begin(), gain_.end(), 0.0);
    each_column([&](i64 begin, i64 end) {
      for (int side = 0; side < 2; ++side)
        for (i64 b = 0; b < slots_; ++b)
          if (const i32 x = cell(side, slot, b)) add_gains(x, 0, row(1 - side, b), begin, end);
    });
    for (int j = 0; j < slots_; ++j)
      if (j != slot) loss_[place(slot, j)] = loss_of(slot, j);
    look_again(slot);
    newest_ = slot;
  }

  // The pair whose merging loses least.
  std::pair<int, int> cheapest() const {
    int r = static_cast<int>(std::min_element(least_.begin(), least_.end()) - least_.begin());
    std::pair<int, int> pair{r, least_at_[r]};
    if (newest_ >= 0)
      for (r = newest_ + 1; r < slots_; ++r)
        if (loss_[place(r, newest_)] < loss_[place(pair.first, pair.second)]) pair = {r, newest_};
    return pair;
  }
  double loss(int i, int j) const { return loss_[place(i, j)] / h_.scale(); }

  // The class in slot t goes into that of slot s.
  void merge(int s, int t) {
    if (threads_.poll) threads_.poll();
    for (int j = 0; j < slots_; ++j)
      if (active_[j] && j != s && j != t) gain_[j] = sums_part(s, j) + block(s, j) - loss_[place(s, j)];
    for (int side = 0; side < 2; ++side) {
      // what all classes i count with s and with t: c_is, c_it
      into_[side].count.assign(row(1 - side, s), row(1 - side, s) + slots_);
      fresh_[side].count.assign(row(1 - side, t), row(1 - side, t) + slots_);
      fresh_[side].at.clear();
      for (int i = 0; i < slots_; ++i)
        if (fresh_[side].count[i] > 0) fresh_[side].at.push_back(i);
    }
    each_row([&](i64 r) { merge_contexts(static_cast<int>(r), s, t); }, terms(fresh_[0]) + terms(fresh_[1]));
    for (int side = 0; side < 2; ++side) merge_context_of(side, s);
    merge_rows(s, t);
    for (int side = 0; side < 2; ++side) {
      set_sum(side, s, sum_[side][s] + sum_[side][t]);
      set_sum(side, t, 0);
    }
    words_[s].insert(words_[s].end(), words_[t].begin(), words_[t].end());
    for (const u32 word : words_[t]) slot_[word] = s;
    words_[t].clear();
    first_word_[s] = std::min(first_word_[s], first_word_[t]);
    active_[t] = 0;
    refresh(t);
    refresh(s);
    if (newest_ == s || newest_ == t) newest_ = -1;
    settle();
  }

  i64 neighbours(int s) const {
    i64 n = 0;
    for (int i = 0; i < slots_; ++i) n += (row(0, s)[i] > 0) + (row(1, s)[i] > 0);
    return n;
  }
  u32 first_word(int s) const { return first_word_[s]; }
  const std::vector<u32>& words(int s) const { return words_[s]; }
  bool active(int s) const { return active_[s] != 0; }

 private:
  // side 0: follow_[0][i][b], how often class b follows i; side 1: how often it goes before
  i32* row(int side, i64 i) { return follow_[side].data() + i * slots_; }
  const i32* row(int side, i64 i) const { return follow_[side].data() + i * slots_; }
  i32& cell(int side, i64 i, i64 b) { return row(side, i)[b]; }
  static std::size_t place(i64 i, i64 j) {
    return static_cast<std::size_t>(i > j ? i * (i + 1) / 2 + j : j * (j + 1) / 2 + i);
  }
  double g(i64 x, i64 y) const { return h_(x + y) - h_(x) - h_(y); }
  void set_sum(int side, int i, i64 x) {
    sum_[side][i] = x;
    h_sum_[side][i] = h_(x);
  }
  i64 terms(const Side& x) const { return std::ssize(x.at) * slots_; }

  // The counts of a word with the classes that are there.
  void collect(const Bigrams& bigrams, u32 word, int slot, Side& out, i64& itself) const {
    out.count.assign(slots_, 0);
    out.at.clear();
    for (i64 k = bigrams.ptr[word]; k < bigrams.ptr[word + 1]; ++k) {
      const int other = slot_[bigrams.next[k]];
      if (other == slot) itself = bigrams.count[k];
      if (other < 0 || other == slot) continue;
      if (out.count[other] == 0) out.at.push_back(other);
      out.count[other] += static_cast<i32>(bigrams.count[k]);
    }
    std::sort(out.at.begin(), out.at.end());
  }

  // Calls f(r) for every row of the losses, on threads if there is enough to do.
  template <class F>
  void each_row(F f, i64 work) {
    in_tasks(work, [&](i64 task) {
      for (i64 r = task; r < slots_; r += kTasks)
        if (active_[r]) f(r);
    });
  }
  // Calls f(begin, end) for ranges of classes.
  template <class F>
  void each_column(F f) {
    const i64 work = terms(fresh_[0]) + terms(fresh_[1]);
    if (work < kAlone) return f(0, slots_);
    const i64 size = (slots_ + kTasks - 1) / kTasks;
    in_tasks(work, [&](i64 task) { f(std::min<i64>(slots_, task * size), std::min<i64>(slots_, (task + 1) * size)); });
  }
  template <class F>
  void in_tasks(i64 work, F f) {
    const FunctionRef<void(i64)> job(f);
    if (work < kAlone || threads_.count < 2) {
      for (i64 task = 0; task < kTasks; ++task) job(task);
      return;
    }
    job_ = &job;
    phases_.run();
  }

  // Adds to a loss, and keeps the least of its row; false if that must be looked for anew.
  bool add(int r, int j, double x) {
    double& value = loss_[place(r, j)];
    value += x;
    if (value < least_[r] || (value == least_[r] && j < least_at_[r])) {
      least_[r] = value;
      least_at_[r] = j;
    } else if (j == least_at_[r] && value > least_[r]) {
      return false;
    }
    return true;
  }
  void look_again(int r) {
    const double* values = loss_.data() + place(r, 0);
    const double* found = std::min_element(values, values + r);
    least_[r] = r > 0 ? *found : kInfinity;
    least_at_[r] = r > 0 ? static_cast<int>(found - values) : 0;
  }

  // A word comes in: the losses in row r by its counts with r and others (a context more), and by their new sums.
  void add_context(int r) {
    bool sound = true;
    for (int side = 0; side < 2; ++side) {
      // side 0: what comes after the word gains on its left, sum_[1]
      const Side& x = fresh_[side];
      const auto &now = sum_[1 - side], &old = old_sum_[1 - side];
      const auto &h_now = h_sum_[1 - side], &h_old = old_h_[1 - side];
      const i32 mine = x.count[r];
      const double own = h_now[r] - h_old[r];
      const auto change = [&](int j) {
        return h_(now[r] + now[j]) - h_(old[r] + old[j]) - own - (h_now[j] - h_old[j]);
      };
      if (mine == 0) {
        for (const int j : x.at) {
          if (j >= r) break;
          sound &= add(r, j, change(j));
        }
      } else {
        for (int j = 0; j < r; ++j)
          if (active_[j]) sound &= add(r, j, change(j) - (x.count[j] ? g(mine, x.count[j]) : 0.0));
      }
    }
    if (!sound) look_again(r);
  }

  // Classes s and t become one context: the losses in row r, of pairs without them.
  void merge_contexts(int r, int s, int t) {
    if (r == s || r == t) return;
    bool sound = true;
    for (int side = 0; side < 2; ++side) {
      const Side &of_s = into_[side], &of_t = fresh_[side];
      const i64 a = of_s.count[r], b = of_t.count[r];
      const auto change = [&](int j) {
        const i64 x = of_s.count[j], y = of_t.count[j];
        return g(a + b, x + y) - g(a, x) - g(b, y);
      };
      if (b > 0) {
        const double own = h_(a + b) - h_(a);
        for (int j = 0; j < r; ++j) {
          if (!active_[j] || j == s || j == t) continue;
          const i64 x = of_s.count[j];
          if (of_t.count[j] > 0) sound &= add(r, j, -change(j));
          else if (x > 0) sound &= add(r, j, -(h_(a + b + x) - h_(a + x) - own));
        }
      } else if (a > 0) {
        for (const int j : of_t.at) {
          if (j >= r) break;
          if (j != s && j != t) sound &= add(r, j, -change(j));
        }
      }
    }
    if (!sound) look_again(r);
  }
  // The same for pairs of s and others, in gain_.
  void merge_context_of(int side, int s) {
    const Side &of_s = into_[side], &of_t = fresh_[side];
    const i64 a = of_s.count[s], b = of_t.count[s];
    for (int j = 0; j < slots_; ++j) {
      const i64 x = of_s.count[j], y = of_t.count[j];
      gain_[j] += g(a + b, x + y) - g(a, x) - g(b, y);
    }
  }

  // gain_[j] += g(x + y, others[j]) - g(y, others[j])
  void add_gains(i64 x, i64 y, const i32* others, i64 begin, i64 end) {
    const double own = h_(x + y) - h_(y);
    for (i64 j = begin; j < end; ++j) gain_[j] += h_(x + y + others[j]) - h_(y + others[j]) - own;
  }

  // Row t is added to row s, in counts and in gain_, where s and t are one context already.
  void merge_rows(int s, int t) {
    std::vector<i32> both[2], of_t[2], of_s[2];
    for (int side = 0; side < 2; ++side) {
      of_s[side].assign(row(side, s), row(side, s) + slots_);
      of_t[side].assign(row(side, t), row(side, t) + slots_);
      for (auto* x : {&of_s[side], &of_t[side]}) {
        (*x)[s] += (*x)[t];
        (*x)[t] = 0;
      }
      both[side] = into_[side].count;  // c_js + c_jt, of all j
      for (int j = 0; j < slots_; ++j) both[side][j] += fresh_[side].count[j];
    }
    each_column([&](i64 begin, i64 end) {
      for (int side = 0; side < 2; ++side)
        for (i64 b = 0; b < slots_; ++b)
          if (const i32 x = of_t[side][b])
            add_gains(x, of_s[side][b], b == s ? both[side].data() : row(1 - side, b), begin, end);
    });
    for (int side = 0; side < 2; ++side)
      for (int b = 0; b < slots_; ++b) {
        const i32 x = of_s[side][b] + of_t[side][b];
        cell(side, s, b) = x;
        cell(1 - side, b, s) = x;
        cell(side, t, b) = cell(1 - side, b, t) = 0;
      }
  }

  double sums_part(int i, int j) const {
    double x = 0;
    for (int side = 0; side < 2; ++side) x += h_(sum_[side][i] + sum_[side][j]) - h_sum_[side][i] - h_sum_[side][j];
    return x;
  }
  // What the sums over contexts say of the four cells among i and j, less what their becoming one gains.
  double block(int i, int j) const {
    const i64 ii = row(0, i)[i], ij = row(0, i)[j], ji = row(0, j)[i], jj = row(0, j)[j];
    const double counted = g(ii, ji) + g(ij, jj) + g(ii, ij) + g(ji, jj);
    return counted - (h_(ii + ij + ji + jj) - h_(ii) - h_(ij) - h_(ji) - h_(jj));
  }

  double loss_of(int s, int j) const {
    return active_[s] && active_[j] ? sums_part(s, j) + block(s, j) - gain_[j] : kInfinity;
  }
  // All losses of a slot, of gain_; infinite without a class.
  void refresh(int s) {
    for (int j = 0; j < slots_; ++j)
      if (j != s) set(s, j, loss_of(s, j));
    if (active_[s]) look_again(s);
    else least_[s] = kInfinity;
  }
  // A loss of a class and, if the other's row has it, the least of that.
  void set(int s, int j, double value) {
    double& cell = loss_[place(s, j)];
    const bool rises = value > cell;
    cell = value;
    if (j < s || !active_[j]) return;
    if (value < least_[j] || (value == least_[j] && s < least_at_[j])) {
      least_[j] = value;
      least_at_[j] = s;
    } else if (least_at_[j] == s && rises) {
      look_again(j);
    }
  }
  // The rows hear of the newest class: most words go into another at once, and they need not.
  void settle() {
    for (int j = newest_ + 1; newest_ >= 0 && j < slots_; ++j) set(newest_, j, loss_[place(newest_, j)]);
    newest_ = -1;
  }

  const Bigrams& after_;
  const Bigrams before_;
  const Entropy h_;
  const i64 slots_;
  const Threads& threads_;
  const Threads workers_;                    // Ctrl-C is looked for between their tasks
  std::vector<i32> follow_[2];               // [side][slots][slots]
  std::vector<i64> sum_[2], old_sum_[2];     // sums of its rows
  std::vector<double> h_sum_[2], old_h_[2];  // their h
  std::vector<double> loss_;                 // of pairs, triangular; infinite where there is no class
  std::vector<double> least_;                // of each row of it
  std::vector<int> least_at_;                // the first place of it
  std::vector<u8> active_;
  int newest_ = -1;           // the class whose losses the least of later rows may not know
  std::vector<double> gain_;  // sum_b g(c_ib, c_jb) + sum_a g(c_ai, c_aj) of the class at hand, i
  Side fresh_[2], into_[2];
  std::vector<int> slot_;                // of each word, -1 outside
  std::vector<std::vector<u32>> words_;  // of each slot
  std::vector<u32> first_word_;
  const FunctionRef<void(i64)>* job_ = nullptr;
  PhasedThreads phases_;
};

}  // namespace

BrownTree brown_tree(const Bigrams& bigrams, int n_classes, const Threads& threads) {
  const i64 n = bigrams.size();
  const i64 total = std::accumulate(bigrams.count.begin(), bigrams.count.end(), i64{0});
  if (total > std::numeric_limits<i32>::max()) throw Error("the text has more than 2^31 - 1 tokens");
  n_classes = static_cast<int>(std::min<i64>(n_classes, n));
  Window window(bigrams, n_classes, threads);
  BrownTree out;
  const auto merge = [&](std::pair<int, int> pair) {
    auto [s, t] = pair;
    if (window.neighbours(s) < window.neighbours(t)) std::swap(s, t);  // fewer are less work
    out.losses.push_back(window.loss(s, t));
    window.merge(s, t);
    return std::pair(s, t);
  };
  int free = 0;
  for (i64 word = 0; word < n; ++word) {
    window.insert(static_cast<u32>(word), free);
    if (word < n_classes) {
      ++free;
      continue;
    }
    const auto pair = window.cheapest();
    out.choices.emplace_back(window.first_word(pair.first), window.first_word(pair.second));
    free = merge(pair).second;
  }
  out.leaf.assign(n, 0);
  std::vector<u32> node(n_classes + 1, kNone);
  u32 next = 0;
  for (int s = 0; s <= n_classes; ++s) {
    if (!window.active(s)) continue;
    for (const u32 word : window.words(s)) out.leaf[word] = next;
    node[s] = next++;
  }
  for (int k = 1; k < n_classes; ++k) {
    const auto [s, t] = merge(window.cheapest());
    out.merges.emplace_back(node[s], node[t]);
    node[s] = next++;
  }
  return out;
}

}  // namespace crfkit
