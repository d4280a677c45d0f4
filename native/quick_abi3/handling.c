// Requests that the service handles. See methods.h, servers/handling.py.
#include "handling.h"

#include "event.h"
#include "fields.h"
#include "lanes.h"
#include "methods.h"
#include "values.h"

enum { LONGEST_TARGET = 1024 };  // [bytes]

static PyObject *item(PyObject *pair, Py_ssize_t at) {
    return Py_TYPE(pair) == &PyTuple_Type ? PyTuple_GetItem(pair, at) : PyList_GetItem(pair, at);
}

static Py_ssize_t items(PyObject *of) {
    return Py_TYPE(of) == &PyTuple_Type ? PyTuple_Size(of) : Py_TYPE(of) == &PyList_Type ? PyList_Size(of) : -1;
}


// A tuple or list of pairs.
static void put_headers(Text *text, PyObject *headers, Checker *checker) {
    Py_ssize_t count = items(headers);
    if (count < 0) text->failed = 1;
    PUT(text, "[");
    for (Py_ssize_t i = 0; !text->failed && i < count; i++) {
        PyObject *pair = item(headers, i);
        if (items(pair) != 2) {
            text->failed = 1;
            return;
        }
        if (i) PUT(text, ",");
        put_pair(text, item(pair, 0), item(pair, 1), checker);
    }
    PUT(text, "]");
}

// What ``scrubbed_raw`` of servers/handling.py remembers of headers with secrets in them: a reference to their JSON; NULL: nothing, or they are
// not plain.
static PyObject *json_remembered(const Quick *self, PyObject *headers) {
    if (Py_TYPE(headers) != &PyTuple_Type) return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_Size(headers); i++) {
        PyObject *pair = PyTuple_GetItem(headers, i);
        if (Py_TYPE(pair) != &PyTuple_Type || PyTuple_Size(pair) != 2) return NULL;
        for (int k = 0; k < 2; k++) {
            PyTypeObject *type = Py_TYPE(PyTuple_GetItem(pair, k));
            if (type != &PyBytes_Type && type != &PyUnicode_Type) return NULL;
        }
    }
    PyObject *texts = PyObject_GetAttr(self->scrubber, name_texts), *key = PyTuple_Pack(2, name_headers, headers), *json = NULL;
    PyObject *known = texts != NULL && key != NULL && Py_TYPE(texts) == &PyDict_Type ? PyDict_GetItem(texts, key) : NULL;
    if (known != NULL && Py_TYPE(known) == &PyTuple_Type && PyTuple_Size(known) == 2) json = PyTuple_GetItem(known, 1);
    if (json != NULL) json = PyUnicode_AsASCIIString(json);
    Py_XDECREF(key);
    Py_XDECREF(texts);
    PyErr_Clear();
    return json;
}

// ``json``: what is remembered of them, or NULL.
static void put_headers_or(Text *text, PyObject *headers, Checker *checker, PyObject *json) {
    char *p;
    Py_ssize_t n;
    if (json == NULL) put_headers(text, headers, checker);
    else if (PyBytes_AsStringAndSize(json, &p, &n) < 0) text->failed = 1;
    else put(text, p, (size_t)n);
}

static void put_method_name(Text *text, PyObject *method) {
    if (PyUnicode_CompareWithASCIIString(method, "GET") == 0) PUT(text, "\"GET\"");
    else put_text(text, method, NULL);
}

// As ``end_event``; NULL with an error that is to be passed on, or without one.
static PyObject *write_started(Quick *self, PyObject *const *given, Checker *checker, PyObject *headers) {
    Text text;
    if (BEGIN(self, &text, "handling-started", given[5]) < 0) return NULL;
    PUT(&text, "{\"server\":");
    put_text(&text, given[0], NULL);
    PUT(&text, ",\"method\":");
    put_method_name(&text, given[1]);
    PUT(&text, ",\"target\":");
    put_text(&text, given[2], checker);
    PUT(&text, ",\"peer\":");
    put_json(&text, given[3], 0);
    PUT(&text, ",\"headers\":");
    put_headers_or(&text, given[4], checker, headers);
    PUT(&text, "}");
    return end_event(self, &text, NULL, 0);
}

// started(server, method, target, peer, headers, request): an event ``handling-started``.
PyObject *quick_started(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    PyObject *result = NULL, *headers;
    if (count != 6 || !is_recording(self)) Py_RETURN_NONE;
    for (int i = 0; i < 3; i++)
        if (Py_TYPE(given[i]) != &PyUnicode_Type) Py_RETURN_NONE;
    PyObject *checker = checker_of(self);
    if (checker != NULL) result = write_started(self, given, (Checker *)checker, NULL);
    if (result == Py_None && (headers = json_remembered(self, given[4])) != NULL) {
        Py_DECREF(result);
        result = write_started(self, given, (Checker *)checker, headers);
        Py_DECREF(headers);
    }
    Py_XDECREF(checker);
    return result != NULL ? result : not_plain(NULL);
}

// What a client asks for, as it sent it: ASCII, with nothing in it that may be secret.
static void put_target(Text *text, PyObject *path, PyObject *query, const Checker *checker) {
    char *p, *q, target[LONGEST_TARGET];
    Py_ssize_t n, m;
    if (PyBytes_AsStringAndSize(path, &p, &n) < 0 || PyBytes_AsStringAndSize(query, &q, &m) < 0 || n + m >= LONGEST_TARGET) {
        text->failed = 1;
        return;
    }
    memcpy(target, p, (size_t)n);
    if (m) target[n++] = '?';
    memcpy(target + n, q, (size_t)m);
    if (!is_ascii((uint8_t *)target, (size_t)(n + m)) || may_hold_secret(checker, (uint8_t *)target, (size_t)(n + m))) text->failed = 1;
    else put_quoted(text, (uint8_t *)target, (size_t)(n + m));
}

// (path, query, method, client, headers) of a request over HTTP as ASGI has it, none of which changes any more; NULL, perhaps with an error,
// where the scope is not as servers make it.
static PyObject *parts_of_scope(PyObject *scope) {
    PyObject *path = PyDict_GetItem(scope, name_raw_path), *query = PyDict_GetItem(scope, name_query_string);
    PyObject *method = PyDict_GetItem(scope, name_method), *client = PyDict_GetItem(scope, name_client);
    PyObject *headers = PyDict_GetItem(scope, name_headers), *parts = NULL;
    if (path == NULL || Py_TYPE(path) != &PyBytes_Type || !PyBytes_Size(path) || query == NULL || Py_TYPE(query) != &PyBytes_Type ||
        method == NULL || Py_TYPE(method) != &PyUnicode_Type || headers == NULL || items(headers) < 0)
        return NULL;
    if (client != NULL && client != Py_None && items(client) != 2) return NULL;
    PyObject *peer = client == NULL || client == Py_None ? PyTuple_New(0) : PySequence_Tuple(client), *same = PySequence_Tuple(headers);
    if (peer != NULL && same != NULL) parts = PyTuple_Pack(5, path, query, method, peer, same);
    Py_XDECREF(peer);
    Py_XDECREF(same);
    return parts;
}

// What servers/handling.py and recorder.py have of requests, see ``module_requests``.
static struct {
    PyObject *handling, *recorder, *describe, *write, *failed, *before_end;
} requests;

// What lies in objects of ``Handling`` and of ``Recorder``.
static Field number_field, lanes_field, store_field, about_field, began_field, token_field, routed_field, at_rest_field, requests_field;

static int find_fields(void) {
    Field *fields[] = {&number_field, &lanes_field, &store_field, &about_field, &began_field, &token_field, &routed_field, &at_rest_field};
    PyObject *names[] = {name_number, name_lanes, name_store, name_about, name_began, name_token, name_routed, name_at_rest};
    for (int i = 0; i < 8; i++)
        if (find_field(fields[i], requests.handling, names[i]) < 0) return -1;
    if (find_field(&requests_field, (PyObject *)Py_TYPE(requests.recorder), name_requests) < 0) return -1;
    return know_requests(requests.handling);
}

int set_routed(PyObject *handling, PyObject *scope) { return set_field(&routed_field, handling, scope); }

int set_at_rest(PyObject *handling, PyObject *value) { return set_field(&at_rest_field, handling, value); }

int is_handling(PyObject *request) { return (PyObject *)Py_TYPE(request) == requests.handling; }

PyObject *the_recorder(void) { return requests.recorder; }

PyObject *module_requests(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject *parts[6];
    if (!PyArg_ParseTuple(given, "O!OOOOO!", &PyType_Type, &parts[0], &parts[1], &parts[2], &parts[3], &parts[4], &PyList_Type, &parts[5])) return NULL;
    PyObject **places[] = {&requests.handling, &requests.recorder, &requests.describe, &requests.write, &requests.failed, &requests.before_end};
    for (int i = 0; i < 6; i++) {
        Py_INCREF(parts[i]);
        *places[i] = parts[i];
    }
    if (find_fields() < 0) return NULL;
    Py_RETURN_NONE;
}

// The next number for a request, as ``next_request`` of recorder.py.
static PyObject *next_number(void) {
    PyObject *last = get_field(&requests_field, requests.recorder), *next = NULL;
    if (last != NULL) next = PyLong_FromLongLong(PyLong_AsLongLong(last) + 1);
    if (next != NULL && (PyErr_Occurred() || set_field(&requests_field, requests.recorder, next) < 0)) Py_CLEAR(next);
    Py_XDECREF(last);
    return next;
}

PyObject *begin_handling(PyObject *about) {
    PyTypeObject *class = (PyTypeObject *)requests.handling;
    PyObject *handling = ((allocfunc)PyType_GetSlot(class, Py_tp_alloc))(class, 0);
    PyObject *parts[] = {next_number(), new_count(), PyDict_New(), PyLong_FromUnsignedLongLong(now(CLOCK_MONOTONIC))};
    const Field *fields[] = {&number_field, &lanes_field, &store_field, &began_field};
    int failed = handling == NULL || set_field(&about_field, handling, about) < 0 || set_field(&routed_field, handling, Py_None) < 0 ||
                 set_field(&at_rest_field, handling, Py_False) < 0;
    for (int i = 0; i < 4; i++) {
        failed = failed || parts[i] == NULL || set_field(fields[i], handling, parts[i]) < 0;
        Py_XDECREF(parts[i]);
    }
    PyObject *token = failed ? NULL : begin_request(handling);
    if (token == NULL || set_field(&token_field, handling, token) < 0) Py_CLEAR(handling);
    Py_XDECREF(token);
    return handling;
}

// The requests of a connection have one and the same tuple of host and port. Its JSON is remembered in a place by its address, which none else
// can have, since it is kept.
enum { PEERS = 64, LONGEST_PEER = 55 };
static struct {
    PyObject *peer;
    size_t length;
    char json[LONGEST_PEER];
} peers[PEERS];

static void put_peer(Text *text, PyObject *peer) {
    size_t place = ((uintptr_t)peer >> 5) % PEERS, before = text->length;
    if (peers[place].peer == peer) {
        put(text, peers[place].json, peers[place].length);
        return;
    }
    put_json(text, peer, 0);
    size_t length = text->length - before;
    int is_plain = PyTuple_Size(peer) == 2 && Py_TYPE(PyTuple_GetItem(peer, 0)) == &PyUnicode_Type && Py_TYPE(PyTuple_GetItem(peer, 1)) == &PyLong_Type;
    if (!is_plain || text->failed || length > LONGEST_PEER) return;
    PyObject *forgotten = peers[place].peer;
    peers[place].peer = kept(peer);
    peers[place].length = length;
    memcpy(peers[place].json, text->at + before, length);
    Py_XDECREF(forgotten);
}

int write_in_python(PyObject *handling, PyObject *headers) {
    PyErr_Clear();
    PyObject *written = PyObject_CallFunctionObjArgs(requests.write, handling, headers, NULL);
    Py_XDECREF(written);
    return written != NULL ? 0 : -1;
}

// As ``end_event``; NULL with an error that is to be passed on, or without one.
static PyObject *write_arrived(Quick *self, PyObject *number, PyObject *parts, Checker *checker, PyObject *headers) {
    Text text;
    if (BEGIN(self, &text, "handling-started", number) < 0) return NULL;
    PUT(&text, "{\"server\":\"asgi\",\"method\":");
    put_method_name(&text, PyTuple_GetItem(parts, 2));
    PUT(&text, ",\"target\":");
    put_target(&text, PyTuple_GetItem(parts, 0), PyTuple_GetItem(parts, 1), checker);
    PUT(&text, ",\"peer\":");
    put_peer(&text, PyTuple_GetItem(parts, 3));
    PUT(&text, ",\"headers\":");
    put_headers_or(&text, PyTuple_GetItem(parts, 4), checker, headers);
    PUT(&text, "}");
    return end_event(self, &text, NULL, 0);
}

// Writes that it began, in here or by Python code; -1 with an error.
static int tell_arrived(Quick *self, PyObject *handling, PyObject *parts, Checker *checker) {
    PyObject *number = get_field(&number_field, handling), *headers = NULL;
    PyObject *written = number != NULL ? write_arrived(self, number, parts, checker, NULL) : NULL;
    if (written == Py_None && (headers = json_remembered(self, PyTuple_GetItem(parts, 4))) != NULL) {
        Py_DECREF(written);
        written = write_arrived(self, number, parts, checker, headers);
        Py_DECREF(headers);
    }
    Py_XDECREF(number);
    Py_XDECREF(written);
    if (written != NULL && written != Py_None) return 0;
    return is_to_be_passed_on() ? -1 : write_in_python(handling, PyTuple_GetItem(parts, 4));
}

// arrived(scope) -> a handling that was begun, with its event ``handling-started``: a request over HTTP as ASGI has it.
PyObject *quick_arrived(PyObject *object, PyObject *scope) {
    Quick *self = (Quick *)object;
    if (requests.handling == NULL || !is_recording(self) || !are_lanes_found_here() || Py_TYPE(scope) != &PyDict_Type) Py_RETURN_NONE;
    PyObject *parts = parts_of_scope(scope), *checker = parts != NULL ? checker_of(self) : NULL;
    PyObject *about = checker != NULL ? PyTuple_Pack(2, requests.describe, parts) : NULL, *handling = about != NULL ? begin_handling(about) : NULL;
    int is_begun = handling != NULL;
    if (is_begun && tell_arrived(self, handling, parts, (Checker *)checker) < 0) Py_CLEAR(handling);
    Py_XDECREF(about);
    Py_XDECREF(checker);
    Py_XDECREF(parts);
    return is_begun ? handling : not_plain(NULL);
}

static PyObject *write_ended(Quick *self, unsigned long long took, PyObject *const *given, const char *body, size_t size, Checker *checker,
                             PyObject *headers) {
    Text text;
    if (BEGIN(self, &text, "handling-ended", given[4]) < 0) return NULL;
    PUT(&text, "{\"ns\":");
    put_unsigned(&text, took);
    PUT(&text, ",\"status\":");
    if (Py_TYPE(given[1]) != &PyLong_Type || !put_number(&text, given[1])) text.failed = 1;
    if (size) {
        PUT(&text, ",\"bytes\":");
        put_unsigned(&text, (unsigned long long)size);
    }
    PUT(&text, ",\"headers\":");
    put_headers_or(&text, given[2], checker, headers);
    PUT(&text, "}");
    return end_event(self, &text, body, size);
}

// ended(began, status, headers, body, request): an event ``handling-ended``; began: monotonic time.
PyObject *quick_ended(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    char *body;
    Py_ssize_t size;
    PyObject *result = NULL, *headers;
    unsigned long long ended = now(CLOCK_MONOTONIC);
    if (count != 5 || !is_recording(self) || Py_TYPE(given[3]) != &PyBytes_Type) Py_RETURN_NONE;
    unsigned long long began = PyLong_AsUnsignedLongLongMask(given[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(given[3], &body, &size) < 0) return not_plain(NULL);
    PyObject *checker = checker_of(self);
    if (checker != NULL && (size_t)size <= 4 * self->most && is_utf8((uint8_t *)body, (size_t)size) &&
        !may_hold_secret((Checker *)checker, (uint8_t *)body, (size_t)size)) {
        result = write_ended(self, ended - began, given, body, (size_t)size, (Checker *)checker, NULL);
        if (result == Py_None && (headers = json_remembered(self, given[2])) != NULL) {
            Py_DECREF(result);
            result = write_ended(self, ended - began, given, body, (size_t)size, (Checker *)checker, headers);
            Py_DECREF(headers);
        }
    }
    Py_XDECREF(checker);
    return result != NULL ? result : not_plain(NULL);
}

void forget_answer(Answer *answer) {
    Py_CLEAR(answer->status);
    Py_CLEAR(answer->headers);
    Py_CLEAR(answer->body);
}

int hand_over(PyObject *handling, Answer *answer) {
    PyObject *parts[] = {answer->status, answer->headers, answer->body}, *names[] = {name_status, name_raw_headers, name_sole};
    int result = 0;
    for (int i = 0; i < 3 && result == 0; i++)
        if (parts[i] != NULL) result = PyObject_SetAttr(handling, names[i], parts[i]);
    forget_answer(answer);
    return result;
}

// Whether nothing was told to the handling itself: all of that lies in its dictionary.
static int knows_nothing(PyObject *handling) {
    PyObject *told = PyObject_GetAttr(handling, name_dict);
    int result = told != NULL && Py_TYPE(told) == &PyDict_Type && PyDict_Size(told) == 0;
    Py_XDECREF(told);
    return result;
}

// The functions of ``before_end`` whose dictionaries know of any request.
static int report_end(PyObject *number) {
    for (Py_ssize_t i = 0; i < PyList_Size(requests.before_end); i++) {
        PyObject *pair = PyList_GetItem(requests.before_end, i), *known = PyTuple_GetItem(pair, 0), *done;
        if (known == NULL) return -1;
        if (PyDict_Size(known) == 0) continue;
        if ((done = PyObject_CallFunctionObjArgs(PyTuple_GetItem(pair, 1), number, NULL)) == NULL) return -1;
        Py_DECREF(done);
    }
    return 0;
}

// 1: it was told; 0: it is not plain; -1: an error is to be passed on.
static int end_plainly(Quick *writer, PyObject *handling, const Answer *answer) {
    if (answer->status == NULL || answer->headers == NULL || !knows_nothing(handling)) return 0;
    PyObject *began = get_field(&began_field, handling), *number = get_field(&number_field, handling);
    PyObject *token = get_field(&token_field, handling), *body = answer->body, *seq = NULL;
    if (body != NULL) Py_INCREF(body);
    else body = PyBytes_FromStringAndSize(NULL, 0);
    if (began != NULL && number != NULL && token != NULL && token != Py_None && body != NULL && report_end(number) == 0) {
        PyObject *given[] = {began, answer->status, answer->headers, body, number};
        seq = quick_ended((PyObject *)writer, given, 5);
    }
    int result = seq == NULL ? (is_to_be_passed_on() ? -1 : 0) : seq != Py_None;
    if (result == 1 && set_field(&token_field, handling, Py_None) == 0 && end_request(token) < 0) result = is_to_be_passed_on() ? -1 : 1;
    if (result >= 0) PyErr_Clear();
    PyObject *held[] = {began, number, token, body, seq};
    for (int i = 0; i < 5; i++) Py_XDECREF(held[i]);
    return result;
}

static void forget_error(PyObject *type, PyObject *error, PyObject *trace) {
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
}

int switch_off_at_error(void) {
    PyObject *type, *error, *trace;
    if (!PyErr_Occurred()) return 0;
    if (is_to_be_passed_on()) return -1;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL && PyException_SetTraceback(error, trace) < 0) PyErr_Clear();
    PyObject *done = PyObject_CallMethodObjArgs(requests.recorder, name_switch_off, error, NULL);
    forget_error(type, error, trace);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

void fail_handling(PyObject *handling) {
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL && PyException_SetTraceback(error, trace) < 0) PyErr_Clear();
    PyObject *told = PyObject_CallFunctionObjArgs(requests.failed, handling, error, NULL);
    if (told != NULL) PyErr_Restore(type, error, trace);
    else forget_error(type, error, trace);
    Py_XDECREF(told);
}

void end_handling(PyObject *handling, Answer *answer) {
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    Quick *writer = writer_of(requests.recorder);
    int result = writer != NULL ? end_plainly(writer, handling, answer) : 0;
    Py_XDECREF((PyObject *)writer);
    if (result == 0 && hand_over(handling, answer) == 0) {
        PyObject *done = PyObject_CallMethodObjArgs(handling, name_ended, NULL);
        Py_XDECREF(done);
    }
    forget_answer(answer);
    if (switch_off_at_error() == 0) PyErr_Restore(type, error, trace);
    else forget_error(type, error, trace);
}
