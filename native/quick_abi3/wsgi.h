// Requests as WSGI has them (PEP 3333): what servers/wsgi.py does for those that are plain.
#pragma once
#include "python.h"

// wsgi(class, describe, header_name, note_input, note_start, note_piece, watch, leave) -> bool: give the class ``RecordedWsgi`` its ``__call__``; once in a
// process. False: it was done already. What is not plain its own way does (``__call__`` as it was), and the functions of servers/wsgi.py;
// ``describe`` is of servers/handling.py.
PyObject *module_wsgi(PyObject *module, PyObject *given);

// The types of what is made for a request; -1 with an error.
int make_wsgi_types(void);
