// online_kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "online_kernels.hpp"

namespace crfkit::CRFKIT_ISA {
namespace {

template <class T>
std::unique_ptr<OnlineTrainer<T>> make(OnlineData<T>&& data) {
  return with_width<T>(data.lanes, [&](auto W) -> std::unique_ptr<OnlineTrainer<T>> {
    return std::make_unique<Trainer<T, W>>(std::make_shared<const OnlineData<T>>(std::move(data)));
  });
}

}  // namespace

std::unique_ptr<OnlineTrainer<float>> trainer_float(OnlineData<float>&& data) { return make<float>(std::move(data)); }
std::unique_ptr<OnlineTrainer<double>> trainer_double(OnlineData<double>&& data) { return make<double>(std::move(data)); }

}  // namespace crfkit::CRFKIT_ISA
