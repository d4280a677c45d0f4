// Attributes of objects of Python's classes that stand in ``__slots__``, read and written where they lie in the object: a tenth of the work that it
// is to ask for them by name.
#pragma once
#include "python.h"

typedef struct {
    PyObject *name;
    PyTypeObject *class;  // NULL: it was not found; then, and in objects of other classes, it is asked for by its name
    Py_ssize_t at;        // [bytes] from the object's beginning
} Field;

// Find where it lies in objects of a class, which are made by its ``tp_alloc`` alone. -1 with an error; no error where it is in no slot.
int find_field(Field *field, PyObject *class, PyObject *name);

static inline PyObject **place_of(const Field *field, PyObject *object) {
    return Py_TYPE(object) == field->class ? (PyObject **)((char *)object + field->at) : NULL;
}

// As PyObject_GetAttr.
static inline PyObject *get_field(const Field *field, PyObject *object) {
    PyObject **place = place_of(field, object);
    return place != NULL && *place != NULL ? kept(*place) : PyObject_GetAttr(object, field->name);
}

// As PyObject_SetAttr.
static inline int set_field(const Field *field, PyObject *object, PyObject *value) {
    PyObject **place = place_of(field, object);
    if (place == NULL) return PyObject_SetAttr(object, field->name, value);
    PyObject *before = *place;
    *place = kept(value);
    Py_XDECREF(before);
    return 0;
}
