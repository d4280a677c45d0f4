// Reads of the environment: those of libraries pass, those of the service are recorded by the Python code.
#pragma once
#include "python.h"

// environment(class, real, told, environ, items, values, passing, installed) -> a method for that class; once.
PyObject *module_environment(PyObject *module, PyObject *given);
