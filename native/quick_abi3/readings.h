// Clocks and draws. By whom one is made is known by the module of the innermost Python function, see kinds/callers.py: what Python's
// machinery reads for itself, a dozen clocks in a request, is nobody's business. Where that is not known yet, or this is not the
// original, the Python code does it all.
#pragma once
#include "python.h"

// clock(name, module, doc, parts) -> a built-in function ``module.name``; once for each name. ``parts``: see ``fill_source``.
PyObject *module_clock(PyObject *module, PyObject *given);

// The type Draw(parts, are_others_served): a callable in the place of a function that draws; never let go. ``parts``: see ``fill_source``.
PyObject *make_draw_type(void);

// Once, before anything else.
void prepare_readings(void);
