// What the interpreter tells of itself (PEP 578). A hook in Python would be called for each ``id``, ``sys._getframe`` and dozens of others that
// are told of in a request, of which only "open" is wanted.
#pragma once
#include "python.h"

// listen(function) -> bool: have ``function(event, given)`` called for each event "open"; once. False: this Python has no such hooks.
PyObject *module_listen(PyObject *module, PyObject *function);
