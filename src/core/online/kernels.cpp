// kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "online/update_rules.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
std::unique_ptr<OnlineTrainer<T>> trainer(OnlineData<T>&& data) {
  return std::make_unique<Trainer<T>>(std::make_shared<OnlineData<T>>(std::move(data)));
}
#define CRFKIT_DEFINE(T) template std::unique_ptr<OnlineTrainer<T>> trainer(OnlineData<T>&&);
CRFKIT_EACH_SINGLE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
