// See wsgi.h.
#include "wsgi.h"

#include "event.h"
#include "handling.h"
#include "lanes.h"
#include "methods.h"

enum { NAMES = 256, LONGEST_NAME = 256 };  // of headers that are remembered, and their characters

static struct {
    PyObject *slow;                                                           // what ``__call__`` was
    PyObject *describe, *header_name, *note_input, *note_start, *note_piece, *watch, *leave;  // functions in Python
    PyObject *server, *names;  // "wsgi"; by the names of variables those of headers, empty where they are none
} wsgi;

static PyTypeObject *start_type, *pieces_type;

// -- how a request begins

static PyObject *text_of(PyObject *environ, PyObject *name) {
    PyObject *found = PyDict_GetItem(environ, name);
    return found != NULL && Py_TYPE(found) == &PyUnicode_Type && PyUnicode_GetLength(found) ? found : NULL;
}

// The names of all headers of an environment are remembered then, for which Python code runs. 0, perhaps with an error: they are not.
static int learn_names(PyObject *environ) {
    PyObject *keys = PyDict_Size(environ) <= NAMES ? PyDict_Keys(environ) : NULL;
    Py_ssize_t count = keys != NULL ? PyList_Size(keys) : 0;
    // Names of headers are what clients like.
    if (keys != NULL && PyDict_Size(wsgi.names) + count > NAMES) PyDict_Clear(wsgi.names);
    int is_learned = keys != NULL;
    for (Py_ssize_t i = 0; is_learned && i < count; i++) {
        PyObject *key = PyList_GetItem(keys, i);
        is_learned = Py_TYPE(key) == &PyUnicode_Type && PyUnicode_GetLength(key) <= LONGEST_NAME;
        if (!is_learned || PyDict_GetItem(wsgi.names, key) != NULL) continue;
        PyObject *name = PyObject_CallFunctionObjArgs(wsgi.header_name, key, NULL);
        is_learned = name != NULL && PyDict_SetItem(wsgi.names, key, name) == 0;
        Py_XDECREF(name);
    }
    Py_XDECREF(keys);
    return is_learned;
}

static int is_of_a_client(PyObject *key) {
    static const char begin[] = "HTTP_";
    for (Py_ssize_t i = 0; i < 5; i++)
        if (PyUnicode_ReadChar(key, i) != (Py_UCS4)begin[i]) return 0;
    return 1;
}

// ``_headers`` of servers/wsgi.py as a list; NULL, perhaps with an error, where the environment is not plain.
static PyObject *headers_of(PyObject *environ) {
    PyObject *pairs = PyList_New(0), *key, *value;
    Py_ssize_t at = 0, count = PyDict_Size(environ);
    int is_new = 0;
    while (pairs != NULL && PyDict_Next(environ, &at, &key, &value)) {
        PyObject *name = Py_TYPE(key) == &PyUnicode_Type ? PyDict_GetItem(wsgi.names, key) : NULL, *pair = NULL;
        if (name == NULL) {  // once, and then from the beginning, with names that another thread may have forgotten again
            is_new = !is_new && learn_names(environ);
            at = 0;
            if (is_new && PyDict_Size(environ) == count && PyList_SetSlice(pairs, 0, PyList_Size(pairs), NULL) == 0) continue;
        } else if (!PyUnicode_GetLength(name) || Py_TYPE(value) != &PyUnicode_Type || (!PyUnicode_GetLength(value) && !is_of_a_client(key))) {
            continue;
        } else {  // a tuple that is made may have garbage collected, and any code run
            PyObject *both[] = {kept(name), kept(value)};
            int is_added = (pair = PyTuple_Pack(2, name, value)) != NULL && PyList_Append(pairs, pair) == 0;
            for (int i = 0; i < 2; i++) Py_DECREF(both[i]);
            Py_XDECREF(pair);
            if (is_added) continue;
        }
        Py_CLEAR(pairs);
    }
    return pairs;
}

// A number as text, or as such; -1 where it is not plain.
static long port_of(PyObject *port) {
    if (port == NULL) return 0;
    if (Py_TYPE(port) == &PyLong_Type) return PyLong_AsLong(port);
    Py_ssize_t length = Py_TYPE(port) == &PyUnicode_Type ? PyUnicode_GetLength(port) : -1;
    long value = length < 0 || length > 5 ? -1 : 0;
    for (Py_ssize_t i = 0; value >= 0 && i < length; i++) {
        Py_UCS4 digit = PyUnicode_ReadChar(port, i);
        value = digit < '0' || digit > '9' ? -1 : 10 * value + (long)(digit - '0');
    }
    return value;
}

// [host, port]; NULL, perhaps with an error, where they are not plain.
static PyObject *peer_of(PyObject *environ) {
    PyObject *host = text_of(environ, name_remote_addr);
    long port = port_of(PyDict_GetItem(environ, name_remote_port));
    if (host == NULL || port < 0) return NULL;
    Py_INCREF(host);
    PyObject *number = PyLong_FromLong(port), *peer = number != NULL ? PyList_New(2) : NULL;
    if (peer == NULL) {
        Py_XDECREF(number);
        Py_DECREF(host);
        return NULL;
    }
    PyList_SetItem(peer, 0, host);
    PyList_SetItem(peer, 1, number);
    return peer;
}

// Otherwise it certainly has none.
static int may_have_body(PyObject *environ) {
    PyObject *length = PyDict_GetItem(environ, name_content_length), *coding = PyDict_GetItem(environ, name_transfer_encoding);
    if (coding != NULL) return 1;
    if (length == NULL || length == Py_None) return 0;
    return Py_TYPE(length) != &PyUnicode_Type || (PyUnicode_CompareWithASCIIString(length, "") && PyUnicode_CompareWithASCIIString(length, "0"));
}

// A handling that was begun; NULL without an error where it is not plain, and nothing was done then.
static PyObject *begin(Quick *writer, PyObject *environ) {
    PyObject *target = text_of(environ, name_raw_uri), *method = text_of(environ, name_request_method);
    if (target == NULL) target = text_of(environ, name_request_uri);
    if (target == NULL || method == NULL) return NULL;
    Py_INCREF(target);
    Py_INCREF(method);
    PyObject *peer = peer_of(environ), *list = peer != NULL ? headers_of(environ) : NULL, *headers = list != NULL ? PyList_AsTuple(list) : NULL;
    PyObject *about = headers != NULL ? PyTuple_Pack(6, wsgi.describe, wsgi.server, method, target, peer, headers) : NULL;
    PyObject *handling = NULL, *number = NULL, *seq = NULL;
    if (!is_to_be_passed_on()) PyErr_Clear();
    if (about != NULL && (handling = begin_handling(about)) != NULL && (number = PyLong_FromUnsignedLongLong(number_of_request(handling))) != NULL) {
        PyObject *given[] = {wsgi.server, method, target, peer, headers, number};
        seq = quick_started((PyObject *)writer, given, 6);
        if (seq == NULL || (seq == Py_None && write_in_python(handling, headers) < 0)) Py_CLEAR(handling);
    }
    if (handling != NULL && may_have_body(environ)) {
        PyObject *noted = PyObject_CallFunctionObjArgs(wsgi.note_input, environ, handling, NULL);
        if (noted == NULL) Py_CLEAR(handling);
        Py_XDECREF(noted);
    }
    PyObject *held[] = {target, method, peer, list, headers, about, number, seq};
    for (int i = 0; i < 8; i++) Py_XDECREF(held[i]);
    switch_off_at_error();
    return handling;
}

// -- how its answer begins

typedef struct {
    PyObject_HEAD
    PyObject *handling, *wrapped;
    PyObject *write;  // what the server's function returned, if it can be called
    Answer answer;
    int is_told_in_python;  // what comes, from now on
} Start;

static int start_traverse(PyObject *object, visitproc visit, void *arg) {
    Start *self = (Start *)object;
    Py_VISIT(self->handling);
    Py_VISIT(self->wrapped);
    Py_VISIT(self->write);
    Py_VISIT(self->answer.headers);
    return 0;
}

static int start_clear(PyObject *object) {
    Start *self = (Start *)object;
    Py_CLEAR(self->handling);
    Py_CLEAR(self->wrapped);
    Py_CLEAR(self->write);
    forget_answer(&self->answer);
    return 0;
}

static void start_gone(PyObject *object) { let_go(object, start_clear); }

// From now on Python is told by ``function``, which takes the handling and what is given; -1 with an error.
static int tell_in_python(Start *self, PyObject *function, PyObject *given, PyObject *more) {
    PyErr_Clear();
    self->is_told_in_python = 1;
    PyObject *done = hand_over(self->handling, &self->answer) == 0 ? PyObject_CallFunctionObjArgs(function, self->handling, given, more, NULL) : NULL;
    Py_XDECREF(done);
    return done != NULL ? 0 : switch_off_at_error();
}

// "200 OK": three digits.
static int keep_start(Answer *answer, PyObject *status, PyObject *headers) {
    if (answer->status != NULL || Py_TYPE(status) != &PyUnicode_Type || Py_TYPE(headers) != &PyList_Type) return 0;
    Py_ssize_t length = PyUnicode_GetLength(status);
    long code = 0;
    if (length < 3 || (length > 3 && PyUnicode_ReadChar(status, 3) != ' ')) return 0;
    for (Py_ssize_t i = 0; i < 3; i++) {
        Py_UCS4 digit = PyUnicode_ReadChar(status, i);
        if (digit < '0' || digit > '9') return 0;
        code = 10 * code + (long)(digit - '0');
    }
    for (Py_ssize_t i = 0; i < PyList_Size(headers); i++) {
        PyObject *pair = PyList_GetItem(headers, i);
        if (Py_TYPE(pair) != &PyTuple_Type || PyTuple_Size(pair) != 2 || Py_TYPE(PyTuple_GetItem(pair, 0)) != &PyUnicode_Type ||
            Py_TYPE(PyTuple_GetItem(pair, 1)) != &PyUnicode_Type)
            return 0;
    }
    answer->status = PyLong_FromLong(code);
    answer->headers = PyList_AsTuple(headers);
    return answer->status != NULL && answer->headers != NULL;
}

static PyObject *argument(PyObject *given, Py_ssize_t at, PyObject *named, PyObject *name) {
    return at < PyTuple_Size(given) ? PyTuple_GetItem(given, at) : named != NULL ? PyDict_GetItem(named, name) : NULL;
}

// A piece of the body is given to the server; -1 with an error.
static int note(Start *self, PyObject *piece) {
    if (!self->is_told_in_python && Py_TYPE(piece) == &PyBytes_Type && (!PyBytes_Size(piece) || self->answer.body == NULL)) {
        if (PyBytes_Size(piece)) self->answer.body = kept(piece);
        return 0;
    }
    return tell_in_python(self, wsgi.note_piece, piece, NULL);
}

// write(piece), of those who send their answer by what ``start_response`` returns.
static PyObject *start_write(PyObject *object, PyObject *piece) {
    Start *self = (Start *)object;
    if (note(self, piece) < 0) return NULL;
    return PyObject_CallFunctionObjArgs(self->write, piece, NULL);
}

static PyMethodDef write_method = {"write", start_write, METH_O, NULL};

// start_response(status, headers[, exc_info])
static PyObject *start_call(PyObject *object, PyObject *given, PyObject *named) {
    Start *self = (Start *)object;
    PyObject *status = argument(given, 0, named, name_status), *headers = argument(given, 1, named, name_headers);
    if (status != NULL && headers != NULL && (self->is_told_in_python || !keep_start(&self->answer, status, headers)) &&
        tell_in_python(self, wsgi.note_start, status, headers) < 0)
        return NULL;
    PyObject *write = PyObject_Call(self->wrapped, given, named), *before = self->write;
    if (write == NULL || !PyCallable_Check(write)) return write;
    self->write = write;
    Py_XDECREF(before);
    return PyCFunction_NewEx(&write_method, object, NULL);
}

static void start_ended(Start *self) { end_handling(self->handling, &self->answer); }

static PyObject *attribute_of(PyObject *object, PyObject *wrapped, PyObject *name) {
    PyObject *found = PyObject_GenericGetAttr(object, name);
    if (found != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    PyErr_Clear();
    return PyObject_GetAttr(wrapped, name);
}

static PyObject *start_attribute(PyObject *object, PyObject *name) { return attribute_of(object, ((Start *)object)->wrapped, name); }
static PyObject *start_wrapped(PyObject *object, void *Py_UNUSED(closure)) { return kept(((Start *)object)->wrapped); }

// -- an answer that is made while it is sent

typedef struct {
    PyObject_HEAD
    PyObject *wrapped, *pieces;  // ``pieces``: NULL until the first is asked for
    Start *start;                // NULL once it has ended
} Pieces;

static int pieces_traverse(PyObject *object, visitproc visit, void *arg) {
    Pieces *self = (Pieces *)object;
    Py_VISIT(self->wrapped);
    Py_VISIT(self->pieces);
    Py_VISIT((PyObject *)self->start);
    return 0;
}

static int pieces_clear(PyObject *object) {
    Pieces *self = (Pieces *)object;
    Py_CLEAR(self->wrapped);
    Py_CLEAR(self->pieces);
    Py_CLEAR(self->start);
    return 0;
}

// The server has what it asked for, and none of the application's code runs; or it runs again. -1 with an error.
static int rest(const Pieces *self, int is_at_rest) {
    return self->start == NULL ? 0 : set_at_rest(self->start->handling, is_at_rest ? (PyObject *)self->start : Py_False);
}

// With an error set or without.
static void pieces_ended(Pieces *self) {
    Start *start = self->start;
    self->start = NULL;
    if (start != NULL) start_ended(start);
    Py_XDECREF((PyObject *)start);
}

static PyObject *pieces_next(PyObject *object) {
    Pieces *self = (Pieces *)object;
    if (rest(self, 0) < 0) return NULL;
    if (self->pieces == NULL) self->pieces = PyObject_GetIter(self->wrapped);
    PyObject *piece = self->pieces != NULL ? PyIter_Next(self->pieces) : NULL;
    if (piece != NULL) {
        if (self->start != NULL && (note(self->start, piece) < 0 || rest(self, 1) < 0)) Py_CLEAR(piece);
        return piece;
    }
    if (PyErr_Occurred() && self->start != NULL) fail_handling(self->start->handling);
    pieces_ended(self);
    return NULL;
}

static PyObject *pieces_close(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    Pieces *self = (Pieces *)object;
    if (rest(self, 0) < 0) return NULL;
    PyObject *close = PyObject_GetAttr(self->wrapped, name_close), *done = NULL;
    if (close == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    else if (close != NULL && close != Py_None) done = PyObject_CallFunctionObjArgs(close, NULL);
    Py_XDECREF(close);
    Py_XDECREF(done);
    pieces_ended(self);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

// Nobody will ask for more of it.
static void pieces_finalize(PyObject *object) {
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    if (rest((Pieces *)object, 0) < 0) PyErr_Clear();
    pieces_ended((Pieces *)object);
    if (PyErr_Occurred()) PyErr_WriteUnraisable(NULL);
    PyErr_Restore(type, error, trace);
}

static void pieces_gone(PyObject *object) {
    PyObject_GC_UnTrack(object);
    pieces_finalize(object);
    let_go(object, pieces_clear);
}

static PyObject *pieces_attribute(PyObject *object, PyObject *name) { return attribute_of(object, ((Pieces *)object)->wrapped, name); }
static PyObject *pieces_wrapped(PyObject *object, void *Py_UNUSED(closure)) { return kept(((Pieces *)object)->wrapped); }

// -- an application

static Start *make_start(PyObject *handling, PyObject *start_response) {
    Start *start = (Start *)((allocfunc)PyType_GetSlot(start_type, Py_tp_alloc))(start_type, 0);
    if (start == NULL) return NULL;
    start->handling = kept(handling);
    start->wrapped = kept(start_response);
    return start;
}

// All of an answer is there, and some servers look at its length.
static PyObject *watch_whole(Start *start, PyObject *answer) {
    int is_list = Py_TYPE(answer) == &PyList_Type, failed = 0;
    for (Py_ssize_t i = 0; !failed && i < (is_list ? PyList_Size(answer) : PyTuple_Size(answer)); i++) {
        PyObject *piece = kept(is_list ? PyList_GetItem(answer, i) : PyTuple_GetItem(answer, i));
        failed = note(start, piece) < 0;
        Py_DECREF(piece);
    }
    start_ended(start);
    if (PyErr_Occurred()) Py_CLEAR(answer);
    return answer;
}

// Whether servers recognize an answer as a file, and send it by themselves; -1 with an error.
static int is_file(PyObject *environ, PyObject *answer) {
    PyObject *wrapper = PyDict_GetItem(environ, name_file_wrapper);
    if (wrapper == NULL || !PyType_Check(wrapper)) return 0;
    Py_INCREF(wrapper);
    int result = PyObject_IsInstance(answer, wrapper);
    Py_DECREF(wrapper);
    return result;
}

// What the server is given; takes the reference to ``answer``.
static PyObject *watch_answer(Start *start, PyObject *environ, PyObject *answer) {
    if (Py_TYPE(answer) == &PyList_Type || Py_TYPE(answer) == &PyTuple_Type) return watch_whole(start, answer);
    Pieces *pieces = NULL;
    int file = is_file(environ, answer);
    if (file == 0 && (pieces = (Pieces *)((allocfunc)PyType_GetSlot(pieces_type, Py_tp_alloc))(pieces_type, 0)) != NULL) {
        pieces->wrapped = answer;
        pieces->start = (Start *)kept((PyObject *)start);
        if (rest(pieces, 1) == 0) return (PyObject *)pieces;
        Py_DECREF((PyObject *)pieces);
        return NULL;
    }
    PyErr_Clear();
    PyObject *watched = NULL;
    if (hand_over(start->handling, &start->answer) == 0)
        watched = PyObject_CallFunctionObjArgs(wsgi.watch, start->handling, environ, answer, NULL);
    Py_DECREF(answer);
    return watched;
}

static PyObject *call_recorded(PyObject *app, PyObject *environ, PyObject *start_response, PyObject *handling) {
    Start *start = make_start(handling, start_response);
    PyObject *answer = start != NULL ? PyObject_CallFunctionObjArgs(app, environ, (PyObject *)start, NULL) : NULL;
    if (answer != NULL) {
        answer = watch_answer(start, environ, answer);
    } else {
        Answer none = {NULL, NULL, NULL};
        fail_handling(handling);
        end_handling(handling, start != NULL ? &start->answer : &none);
    }
    Py_XDECREF((PyObject *)start);
    return answer;
}

// ``_leave`` of servers/wsgi.py, with what is known here of the answer; -1 with an error.
static int leave(PyObject *handling) {
    PyObject *start = PyObject_GetAttr(handling, name_at_rest), *done = NULL;
    if (start != NULL && (Py_TYPE(start) != start_type || hand_over(handling, &((Start *)start)->answer) == 0))
        done = PyObject_CallFunctionObjArgs(wsgi.leave, handling, NULL);
    Py_XDECREF(start);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

// Whether this is a part of a request. One that its server has left is over then.
static int is_part_of_a_request(const Quick *writer) {
    PyObject *request = running_request(writer), *is_left = request != NULL && is_handling(request) ? PyObject_GetAttr(request, name_is_left) : NULL;
    int is_part = request != NULL && (is_left != Py_True || leave(request) < 0);
    Py_XDECREF(is_left);
    Py_XDECREF(request);
    return is_part;
}

// RecordedWsgi.__call__(environ, start_response)
static PyObject *recorded_call(PyObject *recorded, PyObject *given, PyObject *named) {
    PyObject *environ = PyTuple_Size(given) == 2 ? PyTuple_GetItem(given, 0) : NULL, *app = NULL, *handling = NULL, *answer = NULL;
    int is_plain = environ != NULL && Py_TYPE(environ) == &PyDict_Type && (named == NULL || !PyDict_Size(named)) && are_lanes_found_here();
    Quick *writer = is_plain ? writer_of(the_recorder()) : NULL;
    int is_part = writer != NULL && is_part_of_a_request(writer);
    if (PyErr_Occurred() && switch_off_at_error() < 0) {
        Py_XDECREF((PyObject *)writer);
        return NULL;
    }
    if (writer != NULL && !is_part) handling = begin(writer, environ);
    Py_XDECREF((PyObject *)writer);
    if ((is_part || handling != NULL) && (app = PyObject_GetAttr(recorded, name_wrapped)) != NULL) {
        if (is_part) answer = PyObject_CallFunctionObjArgs(app, environ, PyTuple_GetItem(given, 1), NULL);
        else answer = call_recorded(app, environ, PyTuple_GetItem(given, 1), handling);
    } else if (!PyErr_Occurred()) {
        PyObject *call = PyObject_CallMethodObjArgs(wsgi.slow, name_get, recorded, NULL);
        if (call != NULL) answer = PyObject_Call(call, given, named);
        Py_XDECREF(call);
    }
    Py_XDECREF(app);
    Py_XDECREF(handling);
    return answer;
}

static PyMethodDef call_method = {"__call__", (PyCFunction)(void (*)(void))recorded_call, METH_VARARGS | METH_KEYWORDS, NULL};

static PyGetSetDef start_attributes[] = {{"__wrapped__", start_wrapped, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot start_slots[] = {{Py_tp_dealloc, start_gone},        {Py_tp_traverse, start_traverse}, {Py_tp_clear, start_clear}, {Py_tp_call, start_call},
                                    {Py_tp_getattro, start_attribute}, {Py_tp_getset, start_attributes}, {0, NULL}};
static PyType_Spec start_spec = {"relive_recorder._quick.Start", sizeof(Start), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, start_slots};
static PyMethodDef pieces_methods[] = {{"close", pieces_close, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyGetSetDef pieces_attributes[] = {{"__wrapped__", pieces_wrapped, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot pieces_slots[] = {{Py_tp_dealloc, pieces_gone}, {Py_tp_traverse, pieces_traverse},   {Py_tp_clear, pieces_clear},
                                     {Py_tp_finalize, pieces_finalize}, {Py_tp_iter, itself},         {Py_tp_iternext, pieces_next},       {Py_tp_getattro, pieces_attribute},
                                     {Py_tp_methods, pieces_methods}, {Py_tp_getset, pieces_attributes}, {0, NULL}};
static PyType_Spec pieces_spec = {"relive_recorder._quick.Pieces", sizeof(Pieces), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, pieces_slots};

int make_wsgi_types(void) {
    start_type = (PyTypeObject *)PyType_FromSpec(&start_spec);
    pieces_type = (PyTypeObject *)PyType_FromSpec(&pieces_spec);
    wsgi.server = PyUnicode_InternFromString("wsgi");
    wsgi.names = PyDict_New();
    return start_type != NULL && pieces_type != NULL && wsgi.server != NULL && wsgi.names != NULL ? 0 : -1;
}

PyObject *module_wsgi(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject *class, *parts[7];
    if (!PyArg_ParseTuple(given, "O!OOOOOOO", &PyType_Type, &class, &parts[0], &parts[1], &parts[2], &parts[3], &parts[4], &parts[5], &parts[6])) return NULL;
    if (wsgi.slow != NULL) Py_RETURN_FALSE;
    if ((wsgi.slow = PyObject_GetAttrString(class, "__call__")) == NULL) return NULL;
    PyObject **places[] = {&wsgi.describe, &wsgi.header_name, &wsgi.note_input, &wsgi.note_start, &wsgi.note_piece, &wsgi.watch, &wsgi.leave};
    for (int i = 0; i < 7; i++) *places[i] = kept(parts[i]);
    if (put_method(class, &call_method) < 0) return NULL;
    Py_RETURN_TRUE;
}
