// objective.hpp: the negative log-likelihood of a data set and its gradient.
#pragma once
#include "train/block_objective.hpp"

namespace crfkit {

// sum over sequences of weight * (log Z - score of the gold path), plus c2 |w|^2.
template <class T>
class Objective : public BlockObjective<T> {
  using Base = BlockObjective<T>;
  using Base::blocks_, Base::kernels_, Base::layout_, Base::lock_, Base::other_, Base::state_, Base::sum_,
      Base::weights_;
  using Penalty = typename Base::Penalty;

 public:
  // gold [tokens]; seq_weight [n_seq] or null. constraints: [labels][labels] transitions, then start and end, 0 where
  // allowed and minus infinity where not; or null.
  Objective(std::shared_ptr<const Layout> layout, const Tokens& data, const i32* gold, const double* seq_weight,
            const double* constraints, const Threads& threads);
  // The same of data in a file, whose blocks are made when they are needed; data and gold stay in use.
  Objective(std::shared_ptr<const Layout> layout, const StoredTokens& data, const i32* gold, const double* seq_weight,
            const double* constraints);
  // Making a block takes a third as long as its loss. These are the bytes of a block of the file, as made; and from
  // here on, blocks are read from such bytes, which lie one after another and stay in use.
  std::vector<u8> packed_block(i64 block);
  void use_packed(const u8* bytes, std::vector<i64> offsets);
  // Within the beams, once some are chosen.
  double value_and_grad(const double* w, double c2, double* g, const Threads& threads);
  // out: the Hessian at w times v, with all labels
  void hessian_product(const double* w, const double* v, double c2, double* out, const Threads& threads);

  // Beams of labels for each token, the gold label among them; they stay until they are chosen again or dropped.
  struct BeamSizes {
    i64 tokens = 0, labels = 0, largest = 0;
    i64 fresh = 0;       // labels that the criterion alone would give
    double squares = 0;  // sum of the beams' squared sizes
  };
  // grow: labels that were in the beams before stay in them
  BeamSizes choose_beams(const double* w, const Criterion& criterion, bool grow, const Threads& threads);
  // Those that one block would get.
  BeamSizes beam_sizes(const double* w, i64 block, const Criterion& criterion, const Threads& threads);
  void drop_beams();
  // The beams of all tokens, block after block; and such beams again, for choose_beams to grow from before all else.
  Beams beams();
  void set_beams(const Beams& all);
  std::pair<i64, i64> block_size(i64 block) const;  // tokens, sequences
  bool has_beams() const { return !beams_.empty(); }
  i64 n_blocks() const { return n_blocks_; }
  // Unpenalised value and gradient of one block: with all labels, or within the beams.
  double block_value_and_grad(const double* w, i64 block, bool beams, double* g, const Threads& threads);

 private:
  // A block and the labels of its token rows.
  struct Labelled {
    Block<T> block;
    std::vector<u16> gold;
  };
  struct LabelledView {
    const Block<T>& block;
    const u16* gold;
  };
  void set_gold(Labelled& made) const;
  LabelledView labelled(i64 b, int thread);
  i64 block_tokens(i64 b) const;
  static BeamSizes sizes(const std::vector<BeamBlock<T>>& blocks);
  std::vector<BeamBlock<T>> chosen(const double* w, i64 first, i64 last, const Criterion& criterion,
                                   const std::vector<Beams>& before, const Threads& threads);
  double run(const double* w, i64 first, i64 last, bool beams, double* g, const Threads& threads,
             const Penalty& penalty = {});

  i64 n_blocks_ = 0;
  std::vector<std::vector<u16>> gold_;  // per block, [token rows]
  StoredTokens stored_;                 // instead of the blocks and their labels
  const i32* stored_gold_ = nullptr;
  const u8* packed_ = nullptr;                     // instead of making blocks again and again
  std::vector<i64> packed_at_;                     // [blocks + 1]
  std::vector<std::unique_ptr<Labelled>> loaded_;  // per thread, the block at hand
  std::vector<BeamBlock<T>> beams_;                // per block, or none
};

}  // namespace crfkit
