// module.cpp: the Python module.
#include "base/instruction_set.hpp"
#include "bind/arrays.hpp"

using namespace crfkit;

NB_MODULE(_core, m) {
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    }
  });
  m.def("instruction_set", &instruction_set);
  bind_chains(m);
  bind_objectives(m);
  bind_online(m);
  bind_text(m);
  bind_compat(m);
  bind_tagger(m);
  bind_graph(m);
  bind_lexicons(m);
  bind_words(m);
}
