// online_kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "online_kernels.hpp"

namespace crfkit::CRFKIT_ISA {
namespace {

template <class T, int W>
std::unique_ptr<OnlineTrainer<T>> make(OnlineData<T>&& data) {
  if constexpr (W > 4)
    if (data.lanes < W) return make<T, W / 2>(std::move(data));
  return std::make_unique<Trainer<T, W>>(std::make_shared<const OnlineData<T>>(std::move(data)));
}

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

template <class T>
constexpr int kLanes = kBytes / sizeof(T) > 4 ? kBytes / sizeof(T) : 4;

}  // namespace

std::unique_ptr<OnlineTrainer<float>> trainer_float(OnlineData<float>&& data) { return make<float, kLanes<float>>(std::move(data)); }
std::unique_ptr<OnlineTrainer<double>> trainer_double(OnlineData<double>&& data) { return make<double, kLanes<double>>(std::move(data)); }

}  // namespace crfkit::CRFKIT_ISA
