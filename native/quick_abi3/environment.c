// See environment.h.
#include "environment.h"

#pragma weak PyFrame_GetCode  // from 3.9 on
extern PyFrameObject *PyFrame_GetBack(PyFrameObject *) __attribute__((weak));  // not part of the stable ABI, but the same since 3.9
extern PyObject *PyFrame_GetGlobals(PyFrameObject *) __attribute__((weak));     // neither, but the same since 3.11

// What a method ``__getitem__`` of os.environ's class goes by, see kinds/environment.py.
static struct {
    PyObject *real, *told;             // the method that was there before; the function in Python that records what it gives
    PyObject *environ, *items, *values;  // codes of iterators that go through all of it
    PyObject *passing, *installed;     // see kinds/callers.py: modules that are passed on the way up; verdicts by a code's file
} environment;

// The code of a frame, and the frame above it; new references.
static PyObject *code_of(PyFrameObject *frame) {
    return PyFrame_GetCode != NULL ? (PyObject *)PyFrame_GetCode(frame) : PyObject_GetAttrString((PyObject *)frame, "f_code");
}

static PyFrameObject *frame_above(PyFrameObject *frame) {
    if (PyFrame_GetBack != NULL) return PyFrame_GetBack(frame);
    PyObject *above = PyObject_GetAttrString((PyObject *)frame, "f_back");
    if (above != Py_None) return (PyFrameObject *)above;
    Py_DECREF(above);
    return NULL;
}

// What was found out before: the dictionaries of modules that are passed, and codes in files of libraries, as these read a few variables at each
// request. Each is in one of two places by its address, which none else can have, since it is kept.
enum { PLACES = 64 /* 6 bits */ };
typedef struct {
    PyObject *objects[PLACES];
} Known;
static Known passed, of_libraries;

static size_t place_of(const PyObject *object) { return (uint64_t)(uintptr_t)object * 0x9E3779B97F4A7C15u >> 58; }

static int is_known(const Known *known, const PyObject *object) {
    size_t place = place_of(object);
    return known->objects[place] == object || known->objects[place ^ 1] == object;
}

// Once both places are taken, another one stays unknown.
static void remember(Known *known, PyObject *object) {
    size_t place = place_of(object);
    if (known->objects[place] != NULL) place ^= 1;
    if (known->objects[place] == NULL) known->objects[place] = kept(object);
}

static int is_passing(PyFrameObject *frame) {
    PyObject *globals = PyFrame_GetGlobals != NULL ? PyFrame_GetGlobals(frame) : PyObject_GetAttr((PyObject *)frame, name_globals), *name = NULL;
    int found = globals != NULL && is_known(&passed, globals);
    if (!found && globals != NULL && PyDict_Check(globals)) name = PyDict_GetItem(globals, name_name);
    if (name != NULL && Py_TYPE(name) == &PyUnicode_Type && PySet_Contains(environment.passing, name) == 1) {
        found = 1;
        remember(&passed, globals);
    }
    Py_XDECREF(globals);
    return found;
}

static int is_of_library(PyObject *code) {
    if (is_known(&of_libraries, code)) return 1;
    PyObject *file = PyObject_GetAttr(code, name_file);
    int found = file != NULL && PyDict_GetItem(environment.installed, file) == Py_True;
    if (found) remember(&of_libraries, code);
    Py_XDECREF(file);
    return found;
}

// Nothing is recorded of this read, as is known without asking the Python code.
static int is_read_by_library(void) {
    PyFrameObject *frame = PyEval_GetFrame(), *above;
    if (frame == NULL) return 1;  // no Python code asks
    Py_INCREF(frame);
    PyObject *code = code_of(frame);
    int found = code != NULL && (code == environment.items || code == environment.values);
    if (!found && code != NULL) {
        while (frame != NULL && is_passing(frame)) {
            above = frame_above(frame);
            Py_DECREF(frame);
            frame = above;
        }
        Py_DECREF(code);
        code = frame != NULL ? code_of(frame) : NULL;
        found = code != NULL && is_of_library(code);
    }
    Py_XDECREF(code);
    Py_XDECREF(frame);
    PyErr_Clear();
    return found;
}

static PyObject *environment_item(PyObject *self, PyObject *key) {
    int is_nothing = self != environment.environ || Py_TYPE(key) != &PyUnicode_Type || is_read_by_library();
    return PyObject_CallFunctionObjArgs(is_nothing ? environment.real : environment.told, self, key, NULL);
}

static PyMethodDef environment_method = {"__getitem__", environment_item, METH_O, NULL};

// environment(class, real, told, environ, items, values, passing, installed) -> a method for that class; once.
PyObject *module_environment(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject *class, *parts[7];
    if (!PyArg_ParseTuple(given, "O!OOOOOO!O!", &PyType_Type, &class, &parts[0], &parts[1], &parts[2], &parts[3], &parts[4], &PyFrozenSet_Type,
                          &parts[5], &PyDict_Type, &parts[6]))
        return NULL;
    PyObject **places[] = {&environment.real, &environment.told, &environment.environ, &environment.items, &environment.values,
                           &environment.passing, &environment.installed};
    for (int i = 0; i < 7; i++) {
        Py_INCREF(parts[i]);
        *places[i] = parts[i];
    }
    return PyDescr_NewMethod((PyTypeObject *)class, &environment_method);
}
