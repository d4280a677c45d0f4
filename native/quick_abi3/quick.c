// The type ``Quick``: what Python sees of the writer. See quick.h.
#include "quick.h"

#include "methods.h"
#include "ring.h"
#include "text.h"

PyTypeObject *quick_type;

// put(seq, meta, data) -> bool: as ``Ring.write``.
static PyObject *quick_put(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    char *meta, *data;
    Py_ssize_t meta_size, data_size;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "put takes three arguments");
    unsigned long long seq = PyLong_AsUnsignedLongLong(given[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(given[1], &meta, &meta_size) < 0 ||
        PyBytes_AsStringAndSize(given[2], &data, &data_size) < 0)
        return NULL;
    Text text;
    text_begin(&text);
    text.length = FRAME;
    put(&text, meta, (size_t)meta_size);
    if (text.failed) return PyErr_NoMemory();
    int done = self->map != NULL && write_record(self, seq, text.at, text.length, data, (size_t)data_size);
    text_end(&text);
    return PyBool_FromLong(done);
}

// next() -> int: a number for an event.
static PyObject *quick_next(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    return PyLong_FromUnsignedLongLong(++((Quick *)object)->seq);
}

// last() -> int: of the last event.
static PyObject *quick_last(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    return PyLong_FromUnsignedLongLong(((Quick *)object)->seq);
}

// adopt(): know the file of a branch as one's own.
static PyObject *quick_adopt(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    Quick *self = (Quick *)object;
    if (self->map != NULL) self->epoch = self->words[EPOCH];
    Py_RETURN_NONE;
}

// forget(): let go of the ring; nothing is written any more.
static PyObject *quick_forget(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    unmap((Quick *)object);
    Py_RETURN_NONE;
}

static PyMethodDef quick_methods[] = {
    {"adopt", quick_adopt, METH_NOARGS, NULL},       {"answered", FAST(quick_answered), METH_FASTCALL, NULL},
    {"arrived", quick_arrived, METH_O, NULL}, {"asked", FAST(quick_asked), METH_FASTCALL, NULL},
    {"born", quick_born, METH_NOARGS, NULL},         {"emit", FAST(quick_emit), METH_FASTCALL, NULL},
    {"ended", FAST(quick_ended), METH_FASTCALL, NULL}, {"executed", FAST(quick_executed), METH_FASTCALL, NULL},
    {"forget", quick_forget, METH_NOARGS, NULL},     {"in_lane", quick_in_lane, METH_O, NULL},
    {"last", quick_last, METH_NOARGS, NULL},         {"logged", quick_logged, METH_O, NULL},
    {"next", quick_next, METH_NOARGS, NULL},         {"put", FAST(quick_put), METH_FASTCALL, NULL},
    {"rows", FAST(quick_rows), METH_FASTCALL, NULL}, {"started", FAST(quick_started), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};
static PyType_Slot quick_slots[] = {{Py_tp_new, quick_new}, {Py_tp_dealloc, quick_gone}, {Py_tp_methods, quick_methods}, {0, NULL}};
static PyType_Spec quick_spec = {"relive_recorder._quick.Quick", sizeof(Quick), 0, Py_TPFLAGS_DEFAULT, quick_slots};

PyTypeObject *make_quick_type(void) { return quick_type = (PyTypeObject *)PyType_FromSpec(&quick_spec); }
