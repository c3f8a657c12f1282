// pair_counts.hpp: how often each attribute is seen with each label, for data whose parts are counted one by one.
#pragma once
#include "model/features.hpp"

namespace crfkit {

// As observed_pairs; counts: how often each of the pairs is seen, unless it is null.
Observed counted_pairs(const i64* ptr, const u32* attr, i64 n_tokens, u32 n_attributes, const u32* column,
                       u32 n_columns, double min_count, std::vector<u32>* counts);

}  // namespace crfkit
