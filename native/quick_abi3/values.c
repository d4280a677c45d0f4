// See values.h.
#include "values.h"

int bytes_of(PyObject *value, PyObject **held, char **p, Py_ssize_t *n) {
    *held = NULL;
    if (Py_TYPE(value) == &PyUnicode_Type) {
        *held = PyUnicode_AsUTF8String(value);
        if (*held == NULL) return -1;
    } else if (Py_TYPE(value) == &PyBytes_Type) {
        Py_INCREF(value);
        *held = value;
    } else {
        return -1;
    }
    return PyBytes_AsStringAndSize(*held, p, n);
}

void put_text(Text *text, PyObject *value, const Checker *checker) {
    char *p;
    Py_ssize_t n;
    PyObject *bytes = PyUnicode_AsUTF8String(value);  // the other way would leave a copy in the service's own string
    if (bytes == NULL || PyBytes_AsStringAndSize(bytes, &p, &n) < 0 ||
        (checker != NULL && may_hold_secret(checker, (uint8_t *)p, (size_t)n)))
        text->failed = 1;
    else
        put_quoted(text, (uint8_t *)p, (size_t)n);
    Py_XDECREF(bytes);
}


int put_number(Text *text, PyObject *value) {
    if (value == Py_None) {
        PUT(text, "null");
    } else if (value == Py_True) {
        PUT(text, "true");
    } else if (value == Py_False) {
        PUT(text, "false");
    } else if (Py_TYPE(value) == &PyLong_Type) {
        int over = 0;
        long long number = PyLong_AsLongLongAndOverflow(value, &over);
        if (over || number == INT64_MIN) text->failed = 1;
        else put_signed(text, number);
    } else if (Py_TYPE(value) == &PyFloat_Type) {
        double number = PyFloat_AsDouble(value);
        if (put_short_float(text, number)) return 1;
        char *said = number - number == 0 ? PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL) : NULL;
        if (said == NULL) text->failed = 1;
        else put(text, said, strlen(said));
        PyMem_Free(said);
    } else {
        return 0;
    }
    return 1;
}


void put_json(Text *text, PyObject *value, int depth) {
    if (text->failed || put_number(text, value)) return;
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyUnicode_Type) {
        put_text(text, value, NULL);
    } else if (depth > 4 * DEEPEST) {
        text->failed = 1;
    } else if (type == &PyList_Type || type == &PyTuple_Type) {
        Py_ssize_t count = type == &PyList_Type ? PyList_Size(value) : PyTuple_Size(value);
        PUT(text, "[");
        for (Py_ssize_t i = 0; i < count && !text->failed; i++) {
            if (i) PUT(text, ",");
            put_json(text, type == &PyList_Type ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i), depth + 1);
        }
        PUT(text, "]");
    } else if (type == &PyDict_Type) {
        Py_ssize_t at = 0;
        PyObject *key, *item;
        int first = 1;
        PUT(text, "{");
        // A failure makes an exception, so the garbage collector may have run, and any code with it: nothing is looked at after one.
        while (!text->failed && PyDict_Next(value, &at, &key, &item)) {
            if (Py_TYPE(key) != &PyUnicode_Type) {
                text->failed = 1;
                return;
            }
            if (!first) PUT(text, ",");
            first = 0;
            put_text(text, key, NULL);
            PUT(text, ":");
            put_json(text, item, depth + 1);
        }
        PUT(text, "}");
    } else {
        text->failed = 1;
    }
}

void put_items(Text *text, PyObject *values, const Checker *checker, int depth) {
    int is_list = Py_TYPE(values) == &PyList_Type;
    Py_ssize_t count = is_list ? PyList_Size(values) : PyTuple_Size(values);
    PUT(text, "[");
    for (Py_ssize_t i = 0; i < count && !text->failed; i++) {
        if (i) PUT(text, ",");
        put_packed(text, is_list ? PyList_GetItem(values, i) : PyTuple_GetItem(values, i), checker, depth);
    }
    PUT(text, "]");
}


void put_packed(Text *text, PyObject *value, const Checker *checker, int depth) {
    if (text->failed || put_number(text, value)) return;
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyUnicode_Type) {
        put_text(text, value, checker);
    } else if (type == &PyBytes_Type) {
        char *p;
        Py_ssize_t n;
        if (PyBytes_AsStringAndSize(value, &p, &n) < 0 || may_hold_secret(checker, (uint8_t *)p, (size_t)n)) {
            text->failed = 1;
            return;
        }
        PUT(text, "{\"$\":[\"utf8\",");
        put_quoted(text, (uint8_t *)p, (size_t)n);
        PUT(text, "]}");
    } else if (type == &PyList_Type && depth > 0) {
        put_items(text, value, checker, depth - 1);
    } else {
        text->failed = 1;
    }
}

static void put_part(Text *text, const char *p, size_t n, Checker *checker, int is_name) {
    const uint8_t *part = (const uint8_t *)p;
    if (!is_ascii(part, n) || (is_name ? !is_harmless_name(checker, part, n) : may_hold_secret(checker, part, n))) text->failed = 1;
    else put_quoted(text, part, n);
}

void put_header(Text *text, PyObject *part, Checker *checker, int is_name) {
    char *p;
    Py_ssize_t n;
    PyObject *held;
    if (text->failed) return;
    if (bytes_of(part, &held, &p, &n) < 0) text->failed = 1;
    else put_part(text, p, (size_t)n, checker, is_name);
    Py_XDECREF(held);
}

static void put_bytes_of_pair(Text *text, const char *name, size_t n, const char *value, size_t m, Checker *checker) {
    const char *known = json_of_pair(checker, name, n, value, m);
    if (known != NULL) {
        put(text, known, LENGTH_OF_PAIR(n, m));
        return;
    }
    size_t before = text->length;
    PUT(text, "[");
    put_part(text, name, n, checker, 1);
    PUT(text, ",");
    if (!text->failed) put_part(text, value, m, checker, 0);
    PUT(text, "]");
    if (!text->failed) remember_pair(checker, name, n, m, text->at + before, text->length - before);
}

void put_pair(Text *text, PyObject *name, PyObject *value, Checker *checker) {
    char *p, *q;
    Py_ssize_t n, m;
    PyObject *held_name, *held_value = NULL;
    if (text->failed) return;
    if (bytes_of(name, &held_name, &p, &n) < 0 || bytes_of(value, &held_value, &q, &m) < 0) text->failed = 1;
    else put_bytes_of_pair(text, p, (size_t)n, q, (size_t)m, checker);
    Py_XDECREF(held_name);
    Py_XDECREF(held_value);
}
