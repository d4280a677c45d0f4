// The recorder's quick part: what src/relive_inprocess/relive_recorder does for the events that come most often, in C.
//
// A Python module for the stable ABI of CPython 3.8 and later. It is optional, and it is never the only one who can do something:
// each function here returns None when it meets anything that is not plain (a secret in a text, a type with a form of its own, a long
// text, another mode), and then the Python code does it, whose records are the same to the byte. tests/inprocess/test_quick_*.py
// holds one against the other.
//
// Whoever calls has the GIL, and keeps it: from the moment at which an event has its number until it is in the ring, no Python
// code can run, so that neither threads nor signal handlers nor the garbage collector's finalizers come in between.
//
// No function of the C library is named with its version (it is linked without one), so the library can be loaded where another one is.
//
// The parts: text.h and values.h write JSON, checker.h says which texts are clean, lanes.h who runs, ring.h and event.h write; calls.c, queries.c,
// handling.c have the events, logs.h, asgi.h, wsgi.h, readings.h, environment.h, sqlite.h and audit.h what takes the place of functions of Python.
#include "quick_abi3/python.h"

#include "quick_abi3/asgi.h"
#include "quick_abi3/audit.h"
#include "quick_abi3/checker.h"
#include "quick_abi3/environment.h"
#include "quick_abi3/handling.h"
#include "quick_abi3/lanes.h"
#include "quick_abi3/logs.h"
#include "quick_abi3/quick.h"
#include "quick_abi3/readings.h"
#include "quick_abi3/ring.h"
#include "quick_abi3/sqlite.h"
#include "quick_abi3/text.h"
#include "quick_abi3/wsgi.h"

#define DEFINE_NAME(which, said) PyObject *name_##which;
NAMES_OF_PYTHON(DEFINE_NAME)
#define MAKE_NAME(which, said) name_##which = PyUnicode_InternFromString(said);

extern void *PyInterpreterState_Get(void) __attribute__((weak));   // from 3.9 on
extern void *_PyInterpreterState_Get(void) __attribute__((weak));  // its name in 3.8
extern void *PyInterpreterState_Main(void) __attribute__((weak));  // not of the stable ABI, but the same since 3.7
static void *own_interpreter;

static void *running_interpreter(void) {
    return PyInterpreterState_Get != NULL ? PyInterpreterState_Get() : _PyInterpreterState_Get != NULL ? _PyInterpreterState_Get() : NULL;
}

int is_own_interpreter(void) { return own_interpreter != NULL && running_interpreter() == own_interpreter; }

int put_method(PyObject *class, PyMethodDef *definition) {
    PyObject *method = PyDescr_NewMethod((PyTypeObject *)class, definition);
    int result = method != NULL ? PyObject_SetAttrString(class, definition->ml_name, method) : -1;
    Py_XDECREF(method);
    return result;
}

PyObject *itself(PyObject *object) { return kept(object); }

void let_go(PyObject *object, inquiry clear) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

// is_own() -> bool: this interpreter may use the module. Another one of the process is given a copy of it without ``PyInit__quick``.
static PyObject *module_is_own(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) { return PyBool_FromLong(is_own_interpreter()); }

static PyMethodDef module_methods[] = {
    {"asgi", module_asgi, METH_VARARGS, NULL},
    {"clock", module_clock, METH_VARARGS, NULL},
    {"crc32", module_crc32, METH_O, NULL},
    {"environment", module_environment, METH_VARARGS, NULL},
    {"bear", module_bear, METH_NOARGS, NULL},
    {"here", module_here, METH_NOARGS, NULL},
    {"is_own", module_is_own, METH_NOARGS, NULL},
    {"lanes", module_lanes, METH_VARARGS, NULL},
    {"leave_lanes", module_leave_lanes, METH_NOARGS, NULL},
    {"listen", module_listen, METH_O, NULL},
    {"logs", module_logs, METH_VARARGS, NULL},
    {"requests", module_requests, METH_VARARGS, NULL},
    {"sqlite", module_sqlite, METH_VARARGS, NULL},
    {"wsgi", module_wsgi, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_quick", NULL, -1, module_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__quick(void) {
    // Before any object is made: from 3.12 on another interpreter refuses the module only when this has returned, and what it made then
    // lies in memory that ends with that interpreter.
    void *running = running_interpreter();
    if (checker_type != NULL || (PyInterpreterState_Main != NULL && running != PyInterpreterState_Main()))
        return PyErr_Format(PyExc_ImportError, "only for the main interpreter of a process");
    own_interpreter = running;
    prepare_ring();
    prepare_text();
    prepare_readings();
    NAMES_OF_PYTHON(MAKE_NAME)
    PyObject *module = PyModule_Create(&definition), *draw = make_draw_type();
    if (module == NULL || draw == NULL || make_quick_type() == NULL || make_checker_type() == NULL || make_lane_types() < 0 || make_asgi_types() < 0 || make_wsgi_types() < 0 || PyErr_Occurred()) return NULL;
    Py_INCREF(checker_type);
    Py_INCREF(quick_type);
    if (PyModule_AddObject(module, "Quick", (PyObject *)quick_type) < 0 || PyModule_AddObject(module, "Checker", checker_type) < 0 ||
        PyModule_AddObject(module, "Draw", draw) < 0)
        return NULL;
    return module;
}
