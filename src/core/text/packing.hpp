// packing.hpp: attributes of tokens as blocks that number their attributes themselves, for files.
#pragma once
#include <span>
#include <vector>

#include "base/base.hpp"

namespace crfkit {

// What a block is made of: tokens of one vocabulary, and the numbers of its attributes in that of the file; kNone where
// they are left out.
struct PackPart {
  std::span<const u32> attr;
  std::span<const u16> count;     // attributes of each token
  std::span<const double> value;  // or none: all one
  std::span<const u32> number;
};

class BlockPacker {
 public:
  explicit BlockPacker(u32 n_attributes)
      : n_attributes_(n_attributes), bits_(n_attributes / 64 + 1), words_(bits_.size() / 64 + 1), rank_(bits_.size()) {}
  struct Packed {
    std::vector<u32> attr;      // of the block, ascending
    std::vector<u16> entry;     // places among them, as in StoredGroup
    std::vector<u16> count;     // entries of each token
    std::vector<double> value;  // of the entries, if any part has some
  };
  Packed pack(const std::vector<PackPart>& parts);

 private:
  u32 n_attributes_;
  std::vector<u64> bits_;   // the attributes of a block
  std::vector<u64> words_;  // those of bits_ that have any
  std::vector<u32> rank_;   // how many come before those of a word
  std::vector<u32> found_;  // attributes of the tokens
};

}  // namespace crfkit
