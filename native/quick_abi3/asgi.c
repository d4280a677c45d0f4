// See asgi.h.
#include "asgi.h"

#include "event.h"
#include "handling.h"
#include "lanes.h"
#include "methods.h"

typedef enum { NEXT_RETURN = 0, NEXT_ERROR = -1, NEXT_YIELD = 1 } Next;             // PySendResult
extern Next PyIter_Send(PyObject *, PyObject *, PyObject **) __attribute__((weak));  // of the stable ABI from 3.10 on
enum { AM_SEND = 81 };                                                              // Py_am_send, also from 3.10 on
// Not of the stable ABI, but there since 3.5.
extern PyTypeObject PyCoro_Type __attribute__((weak));

static struct {
    PyObject *slow;                       // what ``__call__`` was
    PyObject *received, *sent, *awaited;  // functions in Python, see servers/asgi.py
} asgi;

static PyTypeObject *watch_type, *answering_type;

// -- what goes through ``send`` and ``receive``

typedef struct {
    PyObject_HEAD
    PyObject *handling, *receive, *send;
    Answer answer;
    int is_told_in_python;  // what is sent, from now on
} Watch;

static int watch_traverse(PyObject *object, visitproc visit, void *arg) {
    Watch *self = (Watch *)object;
    Py_VISIT(self->handling);
    Py_VISIT(self->receive);
    Py_VISIT(self->send);
    Py_VISIT(self->answer.status);
    Py_VISIT(self->answer.headers);
    Py_VISIT(self->answer.body);
    return 0;
}

static int watch_clear(PyObject *object) {
    Watch *self = (Watch *)object;
    Py_CLEAR(self->handling);
    Py_CLEAR(self->receive);
    Py_CLEAR(self->send);
    forget_answer(&self->answer);
    return 0;
}

static void watch_gone(PyObject *object) { let_go(object, watch_clear); }

static int is_said(PyObject *text, const char *said) {
    return text != NULL && Py_TYPE(text) == &PyUnicode_Type && !PyUnicode_CompareWithASCIIString(text, said);
}

// Keep of a message what is told at the end; 0: it is not plain.
static int keep(Answer *answer, PyObject *message) {
    if (Py_TYPE(message) != &PyDict_Type) return 0;
    PyObject *kind = PyDict_GetItem(message, name_type);
    if (is_said(kind, "http.response.body")) {
        PyObject *body = PyDict_GetItem(message, name_body);
        if (body == NULL) return 1;
        if (Py_TYPE(body) != &PyBytes_Type) return 0;
        if (!PyBytes_Size(body)) return 1;
        if (answer->body != NULL) return 0;
        answer->body = kept(body);
        return 1;
    }
    if (!is_said(kind, "http.response.start") || answer->status != NULL) return 0;
    PyObject *status = PyDict_GetItem(message, name_status), *headers = PyDict_GetItem(message, name_headers);
    if (status == NULL || Py_TYPE(status) != &PyLong_Type || headers == NULL ||
        (Py_TYPE(headers) != &PyList_Type && Py_TYPE(headers) != &PyTuple_Type))
        return 0;
    answer->status = kept(status);
    return (answer->headers = PySequence_Tuple(headers)) != NULL;
}

static PyObject *watch_send(PyObject *object, PyObject *message) {
    Watch *self = (Watch *)object;
    if (self->is_told_in_python || !keep(&self->answer, message)) {
        PyErr_Clear();
        self->is_told_in_python = 1;
        PyObject *told = NULL;
        if (hand_over(self->handling, &self->answer) == 0) told = PyObject_CallFunctionObjArgs(asgi.sent, self->handling, message, NULL);
        if (told == NULL && switch_off_at_error() < 0) return NULL;
        Py_XDECREF(told);
    }
    return PyObject_CallFunctionObjArgs(self->send, message, NULL);
}

static PyObject *watch_receive(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    Watch *self = (Watch *)object;
    return PyObject_CallFunctionObjArgs(asgi.received, self->handling, self->receive, NULL);
}

static PyMethodDef send_method = {"send", watch_send, METH_O, NULL}, receive_method = {"receive", watch_receive, METH_NOARGS, NULL};

// -- the coroutine of a request

typedef struct {
    PyObject_HEAD
    PyObject *recorded, *scope, *receive, *send;  // of the call, until its first step
    PyObject *inner;                              // the application's coroutine, or Python's own way to do it all; NULL: it has ended
    Watch *watch;                                 // NULL where this has nothing to tell
    int is_new;
} Answering;

static int answering_traverse(PyObject *object, visitproc visit, void *arg) {
    Answering *self = (Answering *)object;
    Py_VISIT(self->recorded);
    Py_VISIT(self->scope);
    Py_VISIT(self->receive);
    Py_VISIT(self->send);
    Py_VISIT(self->inner);
    Py_VISIT((PyObject *)self->watch);
    return 0;
}

static int answering_clear(PyObject *object) {
    Answering *self = (Answering *)object;
    Py_CLEAR(self->recorded);
    Py_CLEAR(self->scope);
    Py_CLEAR(self->receive);
    Py_CLEAR(self->send);
    Py_CLEAR(self->inner);
    Py_CLEAR(self->watch);
    return 0;
}

// It has ended, with an error set or without.
static void end(Answering *self) {
    Watch *watch = self->watch;
    Py_CLEAR(self->inner);
    self->watch = NULL;
    if (watch != NULL) end_handling(watch->handling, &watch->answer);
    Py_XDECREF((PyObject *)watch);
}

// It ended by the error that is set.
static void fail(Answering *self) {
    if (self->watch != NULL) fail_handling(self->watch->handling);
    end(self);
}

// What can be stepped through of what an application returned; NULL with an error.
static PyObject *coroutine_of(PyObject *made) {
    if (&PyCoro_Type == NULL || Py_TYPE(made) != &PyCoro_Type) {
        PyObject *ours = PyObject_CallFunctionObjArgs(asgi.awaited, made, NULL);
        Py_DECREF(made);
        if ((made = ours) == NULL) return NULL;
    }
    if (PyIter_Send != NULL) return made;
    PyObject *steps = PyObject_CallMethodObjArgs(made, name_await, NULL);
    Py_DECREF(made);
    return steps;
}

// Of a request that has not begun yet; NULL with an error.
static Watch *make_watch(PyObject *receive, PyObject *send) {
    Watch *watch = (Watch *)((allocfunc)PyType_GetSlot(watch_type, Py_tp_alloc))(watch_type, 0);
    if (watch == NULL) return NULL;
    watch->receive = kept(receive);
    watch->send = kept(send);
    return watch;
}

// The request begins here, where it is plain: then ``self->watch`` is there. -1 with an error.
static int begin(Answering *self, Quick *writer) {
    if (Py_TYPE(self->scope) != &PyDict_Type || !is_said(PyDict_GetItem(self->scope, name_type), "http")) return 0;
    Watch *watch = make_watch(self->receive, self->send);
    PyObject *handling = watch != NULL ? quick_arrived((PyObject *)writer, self->scope) : NULL;
    if (handling == NULL || handling == Py_None || set_routed(handling, self->scope) < 0) {
        Py_XDECREF(handling);
        Py_XDECREF((PyObject *)watch);
        return switch_off_at_error();
    }
    watch->handling = handling;
    self->watch = watch;
    return 0;
}

static PyObject *call_bound(PyObject *app, PyObject *scope, PyObject *watch) {
    PyObject *receive = PyCFunction_NewEx(&receive_method, watch, NULL), *send = PyCFunction_NewEx(&send_method, watch, NULL), *made = NULL;
    if (receive != NULL && send != NULL) made = PyObject_CallFunctionObjArgs(app, scope, receive, send, NULL);
    Py_XDECREF(receive);
    Py_XDECREF(send);
    return made;
}

// The first step: from then on there is ``self->inner``; -1 with an error, and then it has ended. ``is_slow``: all in Python.
static int start(Answering *self, int is_slow) {
    Quick *writer = is_slow || !are_lanes_found_here() ? NULL : writer_of(the_recorder());
    PyObject *app = PyObject_GetAttr(self->recorded, name_wrapped), *made = NULL;
    int is_part = writer != NULL && works_for_a_request(writer);
    self->is_new = 0;
    if (app == NULL || (writer != NULL && !is_part && begin(self, writer) < 0)) made = NULL;
    else if (self->watch != NULL) made = call_bound(app, self->scope, (PyObject *)self->watch);
    else if (is_part) made = PyObject_CallFunctionObjArgs(app, self->scope, self->receive, self->send, NULL);
    else made = PyObject_CallFunctionObjArgs(asgi.slow, self->recorded, self->scope, self->receive, self->send, NULL);
    Py_XDECREF(app);
    Py_XDECREF((PyObject *)writer);
    Py_CLEAR(self->recorded);
    Py_CLEAR(self->scope);
    Py_CLEAR(self->receive);
    Py_CLEAR(self->send);
    if (made != NULL) self->inner = coroutine_of(made);
    if (self->inner != NULL) return 0;
    fail(self);
    return -1;
}

// A step of a coroutine; its result is known to be of no use where it returns.
static Next step_of(PyObject *inner, PyObject *given, PyObject **yielded) {
    if (PyIter_Send != NULL) return PyIter_Send(inner, given, yielded);
    *yielded = given == Py_None ? PyIter_Next(inner) : PyObject_CallMethodObjArgs(inner, name_send, given, NULL);
    if (*yielded != NULL) return NEXT_YIELD;
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_StopIteration)) return NEXT_ERROR;
    PyErr_Clear();
    return NEXT_RETURN;
}

// It has gone on, and yields, returns (nothing) or fails.
static Next went_on(Answering *self, Next next, PyObject **yielded) {
    if (next == NEXT_YIELD) return next;
    if (next == NEXT_RETURN) {
        Py_XDECREF(*yielded);
        end(self);
    } else {
        fail(self);
    }
    *yielded = NULL;
    return PyErr_Occurred() ? NEXT_ERROR : NEXT_RETURN;
}

static Next answering_step(Answering *self, PyObject *given, PyObject **yielded) {
    *yielded = NULL;
    if (self->is_new && start(self, 0) < 0) return NEXT_ERROR;
    PyObject *inner = self->inner;
    if (inner == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return NEXT_ERROR;
    }
    Py_INCREF(inner);
    Next next = step_of(inner, given, yielded);
    Py_DECREF(inner);
    return went_on(self, next, yielded);
}

static Next answering_am_send(PyObject *object, PyObject *given, PyObject **result) {
    Next next = answering_step((Answering *)object, given, result);
    if (next == NEXT_RETURN) {
        Py_INCREF(Py_None);
        *result = Py_None;
    }
    return next;
}

static PyObject *answering_next(PyObject *object) {
    PyObject *yielded;
    answering_step((Answering *)object, Py_None, &yielded);
    return yielded;  // NULL without an error: it has returned nothing
}

static PyObject *stepped(Next next, PyObject *yielded) {
    if (next == NEXT_RETURN) PyErr_SetNone(PyExc_StopIteration);
    return yielded;
}

static PyObject *answering_send(PyObject *object, PyObject *given) {
    PyObject *yielded;
    Next next = answering_step((Answering *)object, given, &yielded);
    return stepped(next, yielded);
}

static PyObject *answering_throw(PyObject *object, PyObject *given) {
    Answering *self = (Answering *)object;
    if (self->is_new && start(self, 1) < 0) return NULL;
    if (self->inner == NULL) return PyErr_Format(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
    PyObject *throw = PyObject_GetAttr(self->inner, name_throw), *yielded = throw != NULL ? PyObject_Call(throw, given, NULL) : NULL;
    Py_XDECREF(throw);
    Next next = yielded != NULL ? NEXT_YIELD : PyErr_ExceptionMatches(PyExc_StopIteration) ? NEXT_RETURN : NEXT_ERROR;
    if (next == NEXT_RETURN) PyErr_Clear();
    next = went_on(self, next, &yielded);
    return stepped(next, yielded);
}

// -1 with an error.
static int close_it(Answering *self) {
    self->is_new = 0;
    if (self->inner == NULL) return 0;
    PyObject *closed = PyObject_CallMethodObjArgs(self->inner, name_close, NULL);
    int is_closed = closed != NULL;
    if (is_closed) PyErr_SetNone(PyExc_GeneratorExit);
    Py_XDECREF(closed);
    fail(self);
    if (is_closed && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_GeneratorExit)) PyErr_Clear();
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *answering_close(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    if (close_it((Answering *)object) < 0) return NULL;
    Py_RETURN_NONE;
}

// Nobody will go on with it.
static void answering_finalize(PyObject *object) {
    Answering *self = (Answering *)object;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    if (close_it(self) < 0) PyErr_WriteUnraisable(NULL);
    PyErr_Restore(type, error, trace);
}

static void answering_gone(PyObject *object) {
    PyObject_GC_UnTrack(object);
    answering_finalize(object);
    let_go(object, answering_clear);
}

// What it waits for, as coroutines tell it.
static PyObject *answering_awaits(PyObject *object, void *Py_UNUSED(closure)) {
    PyObject *inner = ((Answering *)object)->inner;
    if (inner == NULL) Py_RETURN_NONE;
    Py_INCREF(inner);
    return inner;
}

// RecordedAsgi.__call__(scope, receive, send)
static PyObject *recorded_call(PyObject *recorded, PyObject *given, PyObject *named) {
    if (PyTuple_Size(given) != 3 || (named != NULL && PyDict_Size(named))) {
        PyObject *call = PyObject_CallMethodObjArgs(asgi.slow, name_get, recorded, NULL);
        PyObject *made = call != NULL ? PyObject_Call(call, given, named) : NULL;
        Py_XDECREF(call);
        return made;
    }
    Answering *self = (Answering *)((allocfunc)PyType_GetSlot(answering_type, Py_tp_alloc))(answering_type, 0);
    if (self == NULL) return NULL;
    self->recorded = kept(recorded);
    self->scope = kept(PyTuple_GetItem(given, 0));
    self->receive = kept(PyTuple_GetItem(given, 1));
    self->send = kept(PyTuple_GetItem(given, 2));
    self->is_new = 1;
    return (PyObject *)self;
}

static PyMethodDef call_method = {"__call__", (PyCFunction)(void (*)(void))recorded_call, METH_VARARGS | METH_KEYWORDS, NULL};

static PyMethodDef answering_methods[] = {{"send", answering_send, METH_O, NULL},
                                          {"throw", answering_throw, METH_VARARGS, NULL},
                                          {"close", answering_close, METH_NOARGS, NULL},
                                          {NULL, NULL, 0, NULL}};
static PyGetSetDef answering_attributes[] = {{"cr_await", answering_awaits, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot answering_slots[] = {{Py_tp_dealloc, answering_gone},     {Py_tp_traverse, answering_traverse}, {Py_tp_clear, answering_clear},
                                        {Py_tp_finalize, answering_finalize}, {Py_tp_iter, itself},         {Py_tp_iternext, answering_next},
                                        {Py_am_await, itself},       {Py_tp_methods, answering_methods},   {Py_tp_getset, answering_attributes},
                                        {0, NULL},                           {0, NULL}};
static PyType_Spec answering_spec = {"relive_recorder._quick.Answering", sizeof(Answering), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, answering_slots};
static PyType_Slot watch_slots[] = {{Py_tp_dealloc, watch_gone}, {Py_tp_traverse, watch_traverse}, {Py_tp_clear, watch_clear}, {0, NULL}};
static PyType_Spec watch_spec = {"relive_recorder._quick.Watch", sizeof(Watch), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, watch_slots};

int make_asgi_types(void) {
    if (PyIter_Send != NULL) answering_slots[sizeof answering_slots / sizeof *answering_slots - 2] = (PyType_Slot){AM_SEND, answering_am_send};
    answering_type = (PyTypeObject *)PyType_FromSpec(&answering_spec);
    watch_type = (PyTypeObject *)PyType_FromSpec(&watch_spec);
    return answering_type != NULL && watch_type != NULL ? 0 : -1;
}

PyObject *module_asgi(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject *class, *parts[3];
    if (!PyArg_ParseTuple(given, "O!OOO", &PyType_Type, &class, &parts[0], &parts[1], &parts[2])) return NULL;
    if (asgi.slow != NULL) Py_RETURN_FALSE;
    if ((asgi.slow = PyObject_GetAttrString(class, "__call__")) == NULL) return NULL;
    PyObject **places[] = {&asgi.received, &asgi.sent, &asgi.awaited};
    for (int i = 0; i < 3; i++) {
        Py_INCREF(parts[i]);
        *places[i] = parts[i];
    }
    if (put_method(class, &call_method) < 0) return NULL;
    Py_RETURN_TRUE;
}
