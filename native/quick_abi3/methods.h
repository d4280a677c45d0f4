// The methods of ``Quick`` that make events, by what they are about. Each returns None when it meets anything that is not plain.
#pragma once
#include "python.h"

// -- calls.c
PyObject *quick_emit(PyObject *object, PyObject *const *given, Py_ssize_t count);
PyObject *quick_asked(PyObject *object, PyObject *const *given, Py_ssize_t count);
PyObject *quick_answered(PyObject *object, PyObject *const *given, Py_ssize_t count);
// -- queries.c
PyObject *quick_executed(PyObject *object, PyObject *const *given, Py_ssize_t count);
PyObject *quick_rows(PyObject *object, PyObject *const *given, Py_ssize_t count);
// -- handling.c
PyObject *quick_arrived(PyObject *object, PyObject *scope);
PyObject *quick_started(PyObject *object, PyObject *const *given, Py_ssize_t count);
PyObject *quick_ended(PyObject *object, PyObject *const *given, Py_ssize_t count);
// -- logs.c
PyObject *quick_logged(PyObject *object, PyObject *record);
// -- lanes.c
PyObject *quick_born(PyObject *object, PyObject *nothing);
PyObject *quick_in_lane(PyObject *object, PyObject *function);
