#include "text/strings.hpp"

#include <random>

namespace crfkit {
namespace {

u64 random_bits() {
  std::random_device device;  // the system's own, not to be foretold
  return u64{device()} << 32 | device();
}

}  // namespace

const HashSeed kHashSeed{random_bits(), random_bits() | 1};

}  // namespace crfkit
