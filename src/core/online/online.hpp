// online.hpp: training sequence by sequence, with weights that every step changes in place.
//
// All weights lie in one flat array:
//
//   dense rows of attributes | dense rows of edge attributes | single weights | transitions [L][stride] | start | end
//   | tuples of labels
//
// Everything that an algorithm keeps beside the weights (averages, variances, sums of gradients) has the same shape.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/instruction_set.hpp"
#include "base/parallel.hpp"
#include "base/single_precision.hpp"
#include "beam/criteria.hpp"
#include "model/features.hpp"

namespace crfkit {

// Where the weights of the tokens' attributes lie in the flat array: dense rows first, then single weights.
template <class T>
struct FlatRows {
  int width = 0;
  std::vector<i64> ptr;      // first entry of each token           [tokens + 1]
  std::vector<u32> n_dense;  // how many of them are dense rows     [tokens]
  std::vector<u32> at;       // place of an entry in the flat array
  std::vector<u32> column;   // of a single weight in its row
  std::vector<T> value;      // empty: all one
  u32 first = 0;             // place of the first dense row
  std::vector<u16> bits;     // which numbers of a dense row are weights   [dense rows][width / lanes]
};

constexpr u16 kUnknown = 0xffff;  // in place of a gold label

// How many labels of a sequence are known, if only to be one of several.
enum class Known : u8 { all, some, none };

// Weights of three labels in a row, and of more: those of tuples (y[t-k], ..., y[t+1]) with k up to the order less one.
// A tuple of n + 1 labels is one number: the classes of its labels as digits, the last the lowest, plus C^3 for each
// label beyond three. Labels of one class, of C, share these weights. Together with attribute a of the transition into
// its last token, it is that number plus (a + 1) times how many tuples there are.
class TupleWeights {
 public:
  int order = 1;
  std::vector<u16> classes;  // of labels
  u64 n_classes = 0;
  double value = 1;  // of a tuple as a feature: the smaller, the more its weight is penalised

  TupleWeights() = default;
  // Tuple number k has the weight `first` + k of the model.
  TupleWeights(int n, std::vector<u16> class_of, std::vector<u64> tuples, u32 first)
      : order(n), classes(std::move(class_of)), first_(first), tuples_(std::move(tuples)) {
    for (u16 c : classes) n_classes = std::max(n_classes, u64{c} + 1);
    u64 longest = n_classes * n_classes;
    for (int k = 2; k <= order; ++k) many_ += longest *= n_classes;
    std::size_t size = 4;
    while (size < 2 * tuples_.size()) size *= 2;
    mask_ = size - 1;
    slots_.assign(size, kNone);
    for (u32 k = 0; k < tuples_.size(); ++k) {
      std::size_t at = start(tuples_[k]);
      while (slots_[at] != kNone) at = (at + 1) & mask_;
      slots_[at] = k;
    }
  }
  u32 size() const { return static_cast<u32>(tuples_.size()); }
  u32 first() const { return first_; }
  // Whether attributes of transitions have weights with tuples.
  bool with_attributes() const { return !tuples_.empty() && tuples_.back() >= many_; }
  u64 with_attribute(u64 tuple, u32 attribute) const { return tuple + (u64{attribute} + 1) * many_; }
  // The number of a tuple, or kNone
  u32 find(u64 tuple) const {
    for (std::size_t at = start(tuple);; at = (at + 1) & mask_) {
      const u32 k = slots_[at];
      if (k == kNone || tuples_[k] == tuple) return k;
    }
  }

 private:
  std::size_t start(u64 tuple) const { return (tuple * 0x9e3779b97f4a7c15u >> 20) & mask_; }

  u32 first_ = 0;
  u64 many_ = 0;  // tuples of all lengths
  std::vector<u64> tuples_;
  std::vector<u32> slots_ = std::vector<u32>(1, kNone);
  std::size_t mask_ = 0;
};

template <class T>
struct OnlineData {
  int n_labels = 0, stride = 0, lanes = 0;
  bool own_steps = false;  // transitions look at the input
  FlatRows<T> state, edge;
  i64 transition_at = 0, start_at = 0, end_at = 0, tuples_at = 0, size = 0;
  TupleWeights tuples;
  bool has_start = false, has_end = false;
  std::vector<T> pair_mask;  // 1 where a transition has a weight   [labels][stride]
  std::vector<u32> place;    // weight -> place in the flat array
  // attributes of the transition into each token, where tuples have weights with them
  std::vector<i64> edge_ptr;
  std::vector<u32> edge_attr;
  std::vector<i64> offsets;
  std::vector<u16> gold;           // or kUnknown
  std::vector<i32> label;          // as in KnownLabels, or empty: all are known
  std::vector<T> hints;            // [hints][labels]
  std::vector<Known> known;        // of each sequence, or empty: all
  std::vector<double> seq_weight;  // or empty: all one
  std::vector<double> forbidden;   // 0 or minus infinity                 [labels][labels], start, end

  i64 n_seq() const { return static_cast<i64>(offsets.size()) - 1; }
  Known known_of(i64 s) const { return known.empty() ? Known::all : known[s]; }
};

// Tokens seen within beams, labels in these, and most of a token.
struct BeamTally {
  i64 tokens = 0, labels = 0, largest = 0;
};

struct Order {
  const i64* seq;
  i64 n;
};

// A pass over sequences gives the sum of their losses, as they were when each was met.
template <class T>
class OnlineTrainer {
 public:
  virtual ~OnlineTrainer() = default;
  virtual i64 size() const = 0;
  // The data, to be given other sequences between two passes.
  virtual OnlineData<T>& data() = 0;
  // Begins anew at w.
  virtual void set_weights(const double* w) = 0;
  virtual void weights(bool averaged, double* w) = 0;
  // Coefficient of the entropy of the sequences of which nothing is known.
  virtual void set_entropy_weight(double x) = 0;
  // From here on, sequences whose labels are all known are looked at within beams, chosen afresh at each; null: no
  // longer. For sgd and adagrad. Of a higher order, the first-order weights choose them.
  virtual void set_beam(const Criterion* criterion) = 0;
  // Since beams were set.
  virtual BeamTally tally() const = 0;
  // Sum of the losses of the sequences at the present weights.
  virtual double loss(Order order) = 0;
  // The same, with the gradient by the weights in g.
  virtual double gradient(Order order, double* g) = 0;
  // Sum of the entropies in the losses of the last pass, without entropy_weight.
  virtual double entropy() const = 0;
  // Step k (counted from the last set_weights, plus t0): w <- (1 - eta decay) w - eta g, eta = eta0 / (1 + eta0 rate
  // k)^power. average: from here on, keep the mean of w.
  struct Sgd {
    double eta0, decay, rate, power, t0;
    int batch;
    bool average;
  };
  virtual double sgd(Order order, const Sgd& how, const Poll& poll) = 0;
  // h += g^2, w <- w (1 - eta decay / sqrt h) - eta g / sqrt h; floor: what h is at the beginning.
  virtual double adagrad(Order order, double eta, double decay, double floor, int batch, const Poll& poll) = 0;
  // The fractions of labels that were wrong, added up over the sequences of the last pass of one of these three.
  virtual double mistakes() const = 0;
  virtual double perceptron(Order order, const Poll& poll) = 0;
  virtual double passive_aggressive(Order order, int type, double c, bool error_sensitive, const Poll& poll) = 0;
  virtual double arow(Order order, double variance, double r, const Poll& poll) = 0;
  // Stochastic average gradient; search: every how many steps a sequence's Lipschitz constant is looked at again.
  virtual double sag(Order order, double decay, int search, const Poll& poll) = 0;
  virtual const std::vector<double>& lipschitz() = 0;
  // Stochastic meta-descent; damp: a factor of all steps.
  struct Smd {
    double eta0, mu, lambda, decay, damp;
    int batch;
  };
  virtual double smd(Order order, const Smd& how, const Poll& poll) = 0;
  // All that is remembered from pass to pass, as bytes by name; for a trainer of the same data and instruction set.
  using State = std::map<std::string, std::vector<u8>>;
  virtual State state() = 0;
  virtual void restore(const State& state) = 0;
};

template <class T>
OnlineData<T> make_online_data(const Layout& layout, const Tokens& data, const KnownLabels& labels,
                               const double* seq_weight, const double* constraints, TupleWeights&& tuples);
// Other sequences in the place of those that the data has; its weights stay where they are.
template <class T>
void replace_tokens(const Layout& layout, const Tokens& tokens, const KnownLabels& labels, const double* seq_weight,
                    OnlineData<T>& data);

CRFKIT_IN_EACH_SET(template <class T> std::unique_ptr<OnlineTrainer<T>> trainer(OnlineData<T>&& data);)

template <class T>
std::unique_ptr<OnlineTrainer<T>> make_trainer(OnlineData<T>&& data) {
  return CRFKIT_PICK_SINGLE(T, trainer<T>)(std::move(data));
}

}  // namespace crfkit
