// bind_graph.hpp: the Python face of factor graphs.
#pragma once
#include <nanobind/nanobind.h>

void bind_graph(nanobind::module_& m);
