// Requests that the service handles. See methods.h, servers/handling.py.
#include "event.h"
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
        put(text, i ? ",[" : "[", i ? 2 : 1);
        put_header(text, item(pair, 0), checker, 1);
        PUT(text, ",");
        if (text->failed) return;
        put_header(text, item(pair, 1), checker, 0);
        PUT(text, "]");
    }
    PUT(text, "]");
}

// started(server, method, target, peer, headers, request): an event ``handling-started``.
PyObject *quick_started(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    PyObject *result = NULL;
    if (count != 6 || !is_recording(self)) Py_RETURN_NONE;
    for (int i = 0; i < 3; i++)
        if (Py_TYPE(given[i]) != &PyUnicode_Type) Py_RETURN_NONE;
    PyObject *checker = checker_of(self);
    if (checker != NULL && BEGIN(self, &text, "handling-started", given[5]) == 0) {
        PUT(&text, "{\"server\":");
        put_text(&text, given[0], NULL);
        PUT(&text, ",\"method\":");
        put_text(&text, given[1], NULL);
        PUT(&text, ",\"target\":");
        put_text(&text, given[2], (Checker *)checker);
        PUT(&text, ",\"peer\":");
        put_json(&text, given[3], 0);
        PUT(&text, ",\"headers\":");
        put_headers(&text, given[4], (Checker *)checker);
        PUT(&text, "}");
        result = end_event(self, &text, NULL, 0);
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

// arrived(scope, request) -> what ``parts_of_scope`` gives: an event ``handling-started`` for the request of that number.
PyObject *quick_arrived(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    PyObject *written = NULL;
    if (count != 2 || !is_recording(self) || Py_TYPE(given[0]) != &PyDict_Type) Py_RETURN_NONE;
    PyObject *parts = parts_of_scope(given[0]), *checker = parts != NULL ? checker_of(self) : NULL;
    if (checker != NULL && BEGIN(self, &text, "handling-started", given[1]) == 0) {
        PUT(&text, "{\"server\":\"asgi\",\"method\":");
        put_text(&text, PyTuple_GetItem(parts, 2), NULL);
        PUT(&text, ",\"target\":");
        put_target(&text, PyTuple_GetItem(parts, 0), PyTuple_GetItem(parts, 1), (Checker *)checker);
        PUT(&text, ",\"peer\":");
        put_json(&text, PyTuple_GetItem(parts, 3), 0);
        PUT(&text, ",\"headers\":");
        put_headers(&text, PyTuple_GetItem(parts, 4), (Checker *)checker);
        PUT(&text, "}");
        written = end_event(self, &text, NULL, 0);
    }
    Py_XDECREF(checker);
    if (written == NULL || written == Py_None) {
        Py_XDECREF(parts);
        return written != NULL ? written : not_plain(NULL);
    }
    Py_DECREF(written);
    return parts;
}

// ended(began, status, headers, body, request): an event ``handling-ended``; began: monotonic time.
PyObject *quick_ended(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    char *body;
    Py_ssize_t size;
    PyObject *result = NULL;
    unsigned long long ended = now(CLOCK_MONOTONIC);
    if (count != 5 || !is_recording(self) || Py_TYPE(given[3]) != &PyBytes_Type) Py_RETURN_NONE;
    unsigned long long began = PyLong_AsUnsignedLongLong(given[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(given[3], &body, &size) < 0) return not_plain(NULL);
    PyObject *checker = checker_of(self);
    if (checker != NULL && (size_t)size <= 4 * self->most && is_utf8((uint8_t *)body, (size_t)size) &&
        !may_hold_secret((Checker *)checker, (uint8_t *)body, (size_t)size) && BEGIN(self, &text, "handling-ended", given[4]) == 0) {
        PUT(&text, "{\"ns\":");
        put_unsigned(&text, ended - began);
        PUT(&text, ",\"status\":");
        if (Py_TYPE(given[1]) != &PyLong_Type || !put_number(&text, given[1])) text.failed = 1;
        if (size) {
            PUT(&text, ",\"bytes\":");
            put_unsigned(&text, (unsigned long long)size);
        }
        PUT(&text, ",\"headers\":");
        put_headers(&text, given[2], (Checker *)checker);
        PUT(&text, "}");
        result = end_event(self, &text, body, (size_t)size);
    }
    Py_XDECREF(checker);
    return result != NULL ? result : not_plain(NULL);
}
