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
      : n_attributes_(n_attributes), bits_(n_attributes / 64 + 1), rank_(bits_.size()) {}
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
  std::vector<u32> rank_;   // how many come before those of a word
  std::vector<u32> found_;  // attributes of the tokens
};

// Which keys are equal: the group of each, numbered as they come; of each group the sum of the counts and the least
// birth.
struct KeyGroups {
  std::vector<u32> group;
  std::vector<u64> total, birth;
};
KeyGroups group_keys(std::span<const u64> low, std::span<const u64> high, std::span<const u32> count,
                     std::span<const u64> birth);

}  // namespace crfkit
