// Requests that the service handles.
#pragma once
#include "python.h"

// requests(class, recorder, describe, write): what ``Quick.arrived`` goes by: the class ``Handling``; who numbers requests; a function that tells
// later of what was written; one that writes ``(handling, headers)`` where the part in C has refused it.
PyObject *module_requests(PyObject *module, PyObject *given);
