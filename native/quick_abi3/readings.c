// See readings.h.
#include "readings.h"

#include "event.h"
#include "quick.h"
#include "values.h"

typedef struct {
    PyObject *real, *told;     // the function that was there before; the one in Python that records what it says
    PyObject *tell;            // of Python, records a value that was read already
    PyObject *recorder;        // has the writer, while there is one
    PyObject *verdicts;        // which modules are machinery, by name
    PyObject *begin;           // bytes: an event's fields up to the value
    PyObject *uuid;            // the class of what ``real`` gives, where that is a UUID
    const char *kind;
    int are_others_served;     // modules without a verdict are no machinery
    int is_plain;              // ``real`` is a function of C without arguments
} Source;

enum { LONGEST_DRAW = 4096 };  // [bytes] of randomness that is kept

static PyObject *nothing_given;

static PyObject *verdict_on_caller(const Source *source) {
    PyObject *globals = PyEval_GetGlobals(), *name = globals != NULL ? PyDict_GetItem(globals, name_name) : NULL;
    if (globals == NULL) return Py_True;  // a thread or a callback of C: no Python code asks
    PyObject *verdict = name != NULL && Py_TYPE(name) == &PyUnicode_Type ? PyDict_GetItem(source->verdicts, name) : NULL;
    return verdict == NULL && name != NULL && source->are_others_served ? Py_False : verdict;
}

// A UUID of ``uuid``, which keeps it as one number of 128 bits, as ``pack`` of values.py.
static void put_uuid(Text *text, PyObject *value) {
    static const char digits[] = "0123456789abcdef";
    static PyObject *half;
    if (half == NULL) half = PyLong_FromLong(64);
    PyObject *number = half != NULL ? PyObject_GetAttr(value, name_int) : NULL, *high = NULL;
    if (number != NULL && Py_TYPE(number) == &PyLong_Type) high = PyNumber_Rshift(number, half);
    unsigned long long halves[2] = {high != NULL ? PyLong_AsUnsignedLongLong(high) : 0, high != NULL ? PyLong_AsUnsignedLongLongMask(number) : 0};
    char said[36], *at = said;
    for (int i = 0; i < 32; i++) {
        if (i == 8 || i == 12 || i == 16 || i == 20) *at++ = '-';
        *at++ = digits[halves[i / 16] >> (60 - i % 16 * 4) & 15];
    }
    if (high == NULL || PyErr_Occurred()) text->failed = 1;
    PUT(text, "{\"$\":[\"uuid\",\"");
    put(text, said, sizeof said);
    PUT(text, "\"]}");
    Py_XDECREF(number);
    Py_XDECREF(high);
}

// Whether the event of a reading was written; or nothing has to be, as so much randomness is not kept. -1: an error is to be passed on.
static int tell_reading(Quick *self, const Source *source, PyObject *value) {
    Text text;
    char *p;
    Py_ssize_t n;
    int is_bytes = Py_TYPE(value) == &PyBytes_Type;
    if (is_bytes && PyBytes_Size(value) > LONGEST_DRAW) return 1;
    if (begin_event(self, &text, source->kind, strlen(source->kind), NULL) < 0 || PyBytes_AsStringAndSize(source->begin, &p, &n) < 0) {
        text_end(&text);
        if (is_to_be_passed_on()) return -1;
        PyErr_Clear();
        return 0;
    }
    put(&text, p, (size_t)n);
    if (is_bytes && PyBytes_AsStringAndSize(value, &p, &n) == 0) {
        PUT(&text, "{\"$\":[\"bytes\",\"");
        put_base64(&text, (uint8_t *)p, (size_t)n);
        PUT(&text, "\"]}");
    } else if (source->uuid != NULL && (PyObject *)Py_TYPE(value) == source->uuid) {
        put_uuid(&text, value);
    } else if (!put_number(&text, value)) {
        text.failed = 1;
    }
    PUT(&text, "}");
    PyObject *seq = end_event(self, &text, NULL, 0);
    int is_told = seq != Py_None;
    Py_XDECREF(seq);
    return is_told;
}

static PyObject *read_source(const Source *source, PyObject *given, PyObject *named) {
    PyObject *verdict = verdict_on_caller(source);
    if (verdict == Py_True) return PyObject_Call(source->real, given, named);
    Quick *writer = verdict == Py_False ? writer_of(source->recorder) : NULL;
    if (writer == NULL) return PyObject_Call(source->told, given, named);
    PyObject *value = PyObject_Call(source->real, given, named);
    int is_told = value != NULL ? tell_reading(writer, source, value) : 1;
    if (is_told != 1) {
        PyObject *done = is_told == 0 ? PyObject_CallFunctionObjArgs(source->tell, value, NULL) : NULL;
        if (done == NULL) {
            Py_DECREF(value);
            value = NULL;
        }
        Py_XDECREF(done);
    }
    Py_DECREF(writer);
    return value;
}

// The dictionaries of modules that are machinery, as clocks are read by them a dozen times in a request: each in its place by its address, which
// none else can have, since it is kept.
enum { MACHINES = 32 };
static PyObject *machines[MACHINES];

static PyObject *read_clock(const Source *source) {
    PyObject *globals = PyEval_GetGlobals();
    PyObject **place = &machines[((uintptr_t)globals >> 5) % MACHINES];
    if (globals == NULL || *place != globals) {
        if (globals == NULL || *place != NULL || verdict_on_caller(source) != Py_True) return read_source(source, nothing_given, NULL);
        *place = kept(globals);
    }
    // Its code is asked for each time: a tool that moves clocks (time-machine) may have written another into it.
    return source->is_plain ? PyCFunction_GetFunction(source->real)(PyCFunction_GetSelf(source->real), NULL)
                            : PyObject_Call(source->real, nothing_given, NULL);
}

// (begin, real, told, tell, recorder, verdicts): what a source is made of, which keeps them.
static int fill_source(Source *source, PyObject *parts, const char *kind) {
    PyObject *begin, *real, *told, *tell, *recorder, *known;
    if (!PyArg_ParseTuple(parts, "O!OOOOO!", &PyBytes_Type, &begin, &real, &told, &tell, &recorder, &PyDict_Type, &known)) return -1;
    PyObject *held[] = {begin, real, told, tell, recorder, known};
    for (int i = 0; i < 6; i++) Py_INCREF(held[i]);
    *source = (Source){.real = real, .told = told, .tell = tell, .recorder = recorder, .verdicts = known, .begin = begin, .kind = kind};
    source->is_plain = PyCFunction_Check(real) && PyCFunction_GetFlags(real) == METH_NOARGS;
    return 0;
}

// Functions of ``time`` as they are called most. They are built-in functions as those whose places they take.
enum { CLOCKS = 6 };
static Source clocks[CLOCKS];

#define CLOCK(at) \
    static PyObject *clock_##at(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) { return read_clock(&clocks[at]); }
CLOCK(0)
CLOCK(1)
CLOCK(2)
CLOCK(3)
CLOCK(4)
CLOCK(5)
static PyMethodDef clock_methods[CLOCKS] = {
    {"time", clock_0, METH_NOARGS, NULL},         {"time_ns", clock_1, METH_NOARGS, NULL},
    {"monotonic", clock_2, METH_NOARGS, NULL},    {"monotonic_ns", clock_3, METH_NOARGS, NULL},
    {"perf_counter", clock_4, METH_NOARGS, NULL}, {"perf_counter_ns", clock_5, METH_NOARGS, NULL}};

// clock(name, module, doc, parts) -> a built-in function ``module.name``; once for each name. ``parts``: see ``fill_source``.
PyObject *module_clock(PyObject *Py_UNUSED(module), PyObject *given) {
    const char *name, *doc;
    PyObject *time, *parts, *module_name, *result = NULL;
    if (!PyArg_ParseTuple(given, "sOsO!", &name, &time, &doc, &PyTuple_Type, &parts)) return NULL;
    for (int at = 0; at < CLOCKS && result == NULL; at++) {
        if (strcmp(clock_methods[at].ml_name, name) || clocks[at].real != NULL) continue;
        // Kept for good, as the function is.
        char *text = PyMem_Malloc(strlen(name) + strlen(doc) + 8);
        if (text == NULL) return PyErr_NoMemory();
        memcpy(text, name, strlen(name));
        memcpy(text + strlen(name), "()\n--\n\n", 7);
        memcpy(text + strlen(name) + 7, doc, strlen(doc) + 1);
        clock_methods[at].ml_doc = text;
        if (fill_source(&clocks[at], parts, "clock") < 0 || (module_name = PyObject_GetAttrString(time, "__name__")) == NULL) return NULL;
        result = PyCFunction_NewEx(&clock_methods[at], time, module_name);
        Py_DECREF(module_name);
        if (result == NULL) return NULL;
    }
    return result != NULL ? result : PyErr_Format(PyExc_ValueError, "no such clock: %s", name);
}

typedef struct {
    PyObject_HEAD
    Source source;
} Draw;

// Draw(parts, are_others_served, uuid): a callable in the place of a function that draws; never let go. ``parts``: see ``fill_source``;
// ``uuid``: the class of what it gives, None where that is a number or bytes.
static PyObject *draw_new(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(named)) {
    PyObject *parts, *uuid;
    int are_others_served;
    if (!PyArg_ParseTuple(given, "O!pO", &PyTuple_Type, &parts, &are_others_served, &uuid)) return NULL;
    Draw *self = (Draw *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(self);
    if (fill_source(&self->source, parts, "random") < 0) return NULL;
    self->source.are_others_served = are_others_served;
    self->source.uuid = uuid != Py_None ? kept(uuid) : NULL;
    return (PyObject *)self;
}

static PyObject *draw_call(PyObject *self, PyObject *given, PyObject *named) { return read_source(&((Draw *)self)->source, given, named); }

static PyType_Slot draw_slots[] = {{Py_tp_new, draw_new}, {Py_tp_call, draw_call}, {0, NULL}};
static PyType_Spec draw_spec = {"relive_recorder._quick.Draw", sizeof(Draw), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, draw_slots};

PyObject *make_draw_type(void) { return PyType_FromSpec(&draw_spec); }

void prepare_readings(void) { nothing_given = PyTuple_New(0); }
