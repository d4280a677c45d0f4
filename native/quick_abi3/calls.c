// Calls to somebody else, and events whose fields are plain. See methods.h, calls.py.
#include "calls.h"

#include "methods.h"
#include "values.h"

// emit(kind, fields, data, request): as ``Recorder.emit``, where fields may be a text of JSON (ASCII) already.
PyObject *quick_emit(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    char *kind, *data, *fields;
    Py_ssize_t kind_size, data_size, fields_size;
    PyObject *kind_held = NULL, *fields_held = NULL, *result = NULL;
    if (count != 4 || !is_own_ring(self)) Py_RETURN_NONE;
    if (bytes_of(given[0], &kind_held, &kind, &kind_size) == 0 && PyBytes_AsStringAndSize(given[2], &data, &data_size) == 0 &&
        begin_event(self, &text, kind, (size_t)kind_size, given[3]) == 0) {
        if (Py_TYPE(given[1]) == &PyUnicode_Type) {
            if (bytes_of(given[1], &fields_held, &fields, &fields_size) == 0) put(&text, fields, (size_t)fields_size);
            else text.failed = 1;
        } else {
            put_json(&text, given[1], 0);
        }
        result = end_event(self, &text, data, (size_t)data_size);
    }
    Py_XDECREF(kind_held);
    Py_XDECREF(fields_held);
    return result != NULL ? result : not_plain(NULL);
}

// Whether one of some words is, or holds, a name that may tell a secret, or one of them cannot be read: of a command with such a key its
// values are looked at.
static int has_telling_word(const Checker *checker, PyObject *words) {
    int is_list = Py_TYPE(words) == &PyList_Type;
    Py_ssize_t count = is_list ? PyList_Size(words) : PyTuple_Size(words);
    for (Py_ssize_t i = 1; i < count; i++) {
        PyObject *held;
        char *p;
        Py_ssize_t n;
        int found = 0;
        if (bytes_of(is_list ? PyList_GetItem(words, i) : PyTuple_GetItem(words, i), &held, &p, &n) == 0)
            found = has_hint(checker, (uint8_t *)p, (size_t)n);
        Py_XDECREF(held);
        if (found || PyErr_Occurred()) return 1;
    }
    return 0;
}

void put_values(const Quick *self, Text *text, PyObject *values, const Checker *checker) {
    size_t before = text->length;
    put_items(text, values, checker, DEEPEST);
    if (text->length - before > self->most) text->failed = 1;
}

// asked(begin, name, values) -> bytes: the time (8 bytes) and a JSON text: ``begin``; unless ``values`` is None, ``name`` and the values (a
// tuple or list) packed; a closing brace. None where not all is plain, or nothing is recorded. Without a ``name`` the values are words of
// a command.
PyObject *quick_asked(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    unsigned long long began = now(CLOCK_MONOTONIC);
    if (count != 3 || !is_recording(self)) Py_RETURN_NONE;
    text_begin(&text);
    put(&text, (char *)&began, BEGAN);
    for (int i = 0; i < (given[2] == Py_None ? 1 : 2); i++) {
        PyObject *held;
        char *p;
        Py_ssize_t n;
        if (bytes_of(given[i], &held, &p, &n) < 0) text.failed = 1;
        else put(&text, p, (size_t)n);
        Py_XDECREF(held);
    }
    if (given[2] != Py_None) {
        PyObject *checker = checker_of(self);
        if (checker == NULL || (Py_TYPE(given[2]) != &PyTuple_Type && Py_TYPE(given[2]) != &PyList_Type)) text.failed = 1;
        else put_values(self, &text, given[2], (Checker *)checker);
        if (!text.failed && !PyObject_IsTrue(given[1]) && has_telling_word((Checker *)checker, given[2])) text.failed = 1;
        Py_XDECREF(checker);
    }
    PUT(&text, "}");
    PyObject *result = text.failed ? NULL : PyBytes_FromStringAndSize(text.at, (Py_ssize_t)text.length);
    if (result == NULL) return not_plain(&text);
    text_end(&text);
    return result;
}

// Write ``{"asked":`` and it, without a closing brace; -1: it is none.
static int put_asked(Text *text, PyObject *asked, unsigned long long *began) {
    char *p;
    Py_ssize_t n;
    if (PyBytes_AsStringAndSize(asked, &p, &n) < 0 || n < BEGAN) return -1;
    memcpy(began, p, BEGAN);
    PUT(text, "{\"asked\":");
    put(text, p + BEGAN, (size_t)n - BEGAN);
    return 0;
}

// answered(kind, asked, value): a call that has ended, see calls.py. ``asked``: as ``asked`` gave it.
PyObject *quick_answered(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    char *kind;
    Py_ssize_t kind_size;
    PyObject *held = NULL, *result = NULL;
    unsigned long long began = 0, ended = now(CLOCK_MONOTONIC);
    if (count != 3 || !is_recording(self)) Py_RETURN_NONE;
    PyObject *checker = checker_of(self);
    if (checker != NULL && bytes_of(given[0], &held, &kind, &kind_size) == 0 &&
        begin_event(self, &text, kind, (size_t)kind_size, NULL) == 0) {
        if (put_asked(&text, given[1], &began) < 0) text.failed = 1;
        PUT(&text, ",\"answer\":");
        size_t before = text.length;
        put_packed(&text, given[2], (Checker *)checker, DEEPEST);
        if (text.length - before > self->most) text.failed = 1;
        PUT(&text, ",\"ns\":");
        put_unsigned(&text, ended - began);
        PUT(&text, "}");
        result = end_event(self, &text, NULL, 0);
    }
    Py_XDECREF(held);
    Py_XDECREF(checker);
    return result != NULL ? result : not_plain(NULL);
}
