// Requests as ASGI has them: what servers/asgi.py does for those that are plain, from the first step of an application's coroutine to its end.
#pragma once
#include "python.h"

// asgi(class, received, sent, awaited) -> bool: give the class ``RecordedAsgi`` its ``__call__``; once in a process. False: it was done
// already. What is not plain its own way does (``__call__`` as it was), and the three functions of servers/asgi.py.
PyObject *module_asgi(PyObject *module, PyObject *given);

// The types of what is made for a request; -1 with an error.
int make_asgi_types(void);
