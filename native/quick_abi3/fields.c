// See fields.h.
#include "fields.h"

// The only place in an object at which another one is referred to; 0: there is none, or there are several.
static Py_ssize_t place_in(PyObject *object, Py_ssize_t size, const PyObject *held) {
    Py_ssize_t found = 0;
    for (Py_ssize_t at = sizeof(PyObject); at + (Py_ssize_t)sizeof held <= size; at += sizeof held) {
        if (*(PyObject **)((char *)object + at) != held) continue;
        if (found) return 0;
        found = at;
    }
    return found;
}

// Put a new object there by its name, and see where it lies. 0: in no place of the object itself; -1 with an error.
static Py_ssize_t place_when_set(PyObject *object, Py_ssize_t size, PyObject *name) {
    PyObject *mark = PyList_New(0);
    Py_ssize_t at = mark == NULL || PyObject_SetAttr(object, name, mark) < 0 ? -1 : place_in(object, size, mark);
    Py_XDECREF(mark);
    return at;
}

int find_field(Field *field, PyObject *class, PyObject *name) {
    PyObject *basic = PyObject_GetAttrString(class, "__basicsize__"), *object = NULL;
    Py_ssize_t size = basic != NULL ? PyLong_AsSsize_t(basic) : -1, first = -1, second = -1;
    field->name = name;
    if (size >= 0) object = ((allocfunc)PyType_GetSlot((PyTypeObject *)class, Py_tp_alloc))((PyTypeObject *)class, 0);
    if (object != NULL) first = place_when_set(object, size, name);
    if (first >= 0) second = place_when_set(object, size, name);
    Py_XDECREF(object);
    Py_XDECREF(basic);
    if (second < 0) return -1;
    if (first > 0 && first == second) {
        field->class = (PyTypeObject *)kept(class);
        field->at = first;
    }
    return 0;
}
