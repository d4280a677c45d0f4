// Log records, where they are plain: what kinds/logs.py does.
#pragma once
#include "python.h"

// logs(class, recorder, real, told, slow) -> bool: give the class ``Logger`` its ``callHandlers``, which calls ``real``, what it was; once in a
// process. False: it was done already. ``told``: a function in Python that tells of a record which is not plain; ``slow``: ``callHandlers`` in Python,
// for who calls it in another way than ``logging`` does.
PyObject *module_logs(PyObject *module, PyObject *given);
