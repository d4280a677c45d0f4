// Statements of SQLite, and rows. See methods.h, kinds/query.py, kinds/sqlite.py.
#include "calls.h"
#include "methods.h"
#include "values.h"

// (cursor, given) -> as ``asked``, of what is given to a cursor's ``execute`` (a tuple); None where the statement is new.
PyObject *quick_sqlite(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    PyObject *result = NULL, *begin = NULL, *key = NULL, *values = Py_None;
    Py_ssize_t number = count == 2 && Py_TYPE(given[1]) == &PyTuple_Type ? PyTuple_Size(given[1]) : 0;
    if (number < 1 || number > 2 || Py_TYPE(PyTuple_GetItem(given[1], 0)) != &PyUnicode_Type) Py_RETURN_NONE;
    if (number == 2 && (values = PyTuple_GetItem(given[1], 1)) != Py_None) {
        if (Py_TYPE(values) != &PyTuple_Type && Py_TYPE(values) != &PyList_Type) Py_RETURN_NONE;
        if (!PyObject_Size(values)) values = Py_None;
    }
    PyObject *connection = PyObject_GetAttr(given[0], name_connection), *texts = PyObject_GetAttr(self->scrubber, name_texts);
    PyObject *database = connection != NULL ? PyObject_GetAttr(connection, name_database) : NULL;
    if (database != NULL && texts != NULL && Py_TYPE(texts) == &PyDict_Type)
        key = PyTuple_Pack(4, name_asked, name_sqlite, database, PyTuple_GetItem(given[1], 0));
    if (key != NULL && (begin = PyDict_GetItem(texts, key)) != NULL) {
        PyObject *asked[] = {begin, name_parameters, values};
        Py_INCREF(begin);
        result = quick_asked(object, asked, 3);
        Py_DECREF(begin);
    }
    Py_XDECREF(key);
    Py_XDECREF(database);
    Py_XDECREF(connection);
    Py_XDECREF(texts);
    return result != NULL ? result : not_plain(NULL);
}

static void put_columns(Text *text, PyObject *description, Checker *checker) {
    PUT(text, ",\"columns\":[");
    if (Py_TYPE(description) != &PyTuple_Type) text->failed = 1;
    for (Py_ssize_t i = 0; !text->failed && i < PyTuple_Size(description); i++) {
        PyObject *column = PyTuple_GetItem(description, i);
        if (i) PUT(text, ",");
        if (Py_TYPE(column) != &PyTuple_Type || PyTuple_Size(column) < 1 || Py_TYPE(PyTuple_GetItem(column, 0)) != &PyUnicode_Type)
            text->failed = 1;
        else put_header(text, PyTuple_GetItem(column, 0), checker, 1);
    }
    PUT(text, "]");
}

// executed(asked, cursor): a statement that SQLite has executed, see kinds/sqlite.py; a cursor that gives rows gets the number.
PyObject *quick_executed(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    PyObject *result = NULL;
    unsigned long long began, ended = now(CLOCK_MONOTONIC);
    if (count != 2 || !is_recording(self)) Py_RETURN_NONE;
    PyObject *rowcount = PyObject_GetAttr(given[1], name_rowcount), *columns = PyObject_GetAttr(given[1], name_description);
    PyObject *last = columns == Py_None ? PyObject_GetAttr(given[1], name_lastrowid) : NULL;
    PyObject *checker = checker_of(self);
    if (checker != NULL && rowcount != NULL && columns != NULL && (columns != Py_None || last != NULL) && BEGIN(self, &text, "query", NULL) == 0) {
        if (put_asked(&text, given[0], &began) < 0) text.failed = 1;
        PUT(&text, ",\"answer\":{\"rowcount\":");
        if (!put_number(&text, rowcount)) text.failed = 1;
        if (columns != Py_None) {
            put_columns(&text, columns, (Checker *)checker);
        } else if (last != Py_None) {
            PUT(&text, ",\"lastrowid\":");
            if (!put_number(&text, last)) text.failed = 1;
        }
        PUT(&text, "},\"ns\":");
        put_unsigned(&text, ended - began);
        PUT(&text, "}");
        result = end_event(self, &text, NULL, 0);
        if (result != Py_None && columns != Py_None && PyObject_SetAttr(given[1], name_rows, result) < 0) PyErr_Clear();
    }
    Py_XDECREF(checker);
    Py_XDECREF(rowcount);
    Py_XDECREF(columns);
    Py_XDECREF(last);
    return result != NULL ? result : not_plain(NULL);
}

enum { BEGINNING = 1024, LOOKED_THROUGH = 2 * BEGINNING, PIECE = 32 << 10 };

// The CRC-32 of a text in UTF-8. One that is ASCII is read where it lies; others are copied out in pieces, which stay in the processor's
// cache: to ask for the whole would leave a copy in the service's own string.
static int crc32_of_text(PyObject *value, Py_ssize_t length, uint32_t *crc) {
    PyObject *ascii = PyUnicode_AsUTF8AndSize != NULL ? PyObject_CallMethod(value, "isascii", NULL) : NULL;
    Py_ssize_t n;
    char *p = ascii == Py_True ? (char *)PyUnicode_AsUTF8AndSize(value, &n) : NULL;
    *crc = 0;
    Py_XDECREF(ascii);
    if (p != NULL) {
        *crc = crc32_of(0, p, (size_t)n);
        return 0;
    }
    for (Py_ssize_t at = 0; at < length && !PyErr_Occurred(); at += PIECE) {
        PyObject *piece = PyUnicode_Substring(value, at, at + PIECE), *bytes = piece != NULL ? PyUnicode_AsUTF8String(piece) : NULL;
        if (bytes != NULL && !PyBytes_AsStringAndSize(bytes, &p, &n)) *crc = crc32_of(*crc, p, (size_t)n);
        Py_XDECREF(bytes);
        Py_XDECREF(piece);
    }
    return PyErr_Occurred() ? -1 : 0;
}

// A text that is long, see ``long`` of values.py.
static void put_long(Text *text, PyObject *value, Py_ssize_t length, const Checker *checker) {
    PyObject *seen = PyUnicode_Substring(value, 0, LOOKED_THROUGH), *begins = PyUnicode_Substring(value, 0, BEGINNING);
    PyObject *bytes = seen != NULL ? PyUnicode_AsUTF8String(seen) : NULL;
    char *p;
    Py_ssize_t n;
    uint32_t crc;
    if (begins == NULL || bytes == NULL || PyBytes_AsStringAndSize(bytes, &p, &n) < 0 || may_hold_secret(checker, (uint8_t *)p, (size_t)n) ||
        crc32_of_text(value, length, &crc) < 0) {
        text->failed = 1;
    } else {
        PUT(text, "{\"$\":[\"long\",");
        put_text(text, begins, NULL);
        PUT(text, ",");
        put_unsigned(text, (unsigned long long)length);
        PUT(text, ",");
        put_unsigned(text, crc);
        PUT(text, "]}");
    }
    PyObject *held[] = {seen, begins, bytes};
    for (int i = 0; i < 3; i++) Py_XDECREF(held[i]);
}

// A tuple, of which long texts are cut where they are recorded: in a replay they are searched for placeholders.
static void put_row(Text *text, const Quick *self, PyObject *row, const Checker *checker) {
    Py_ssize_t longest = 4 * (Py_ssize_t)self->most, count = PyTuple_Size(row);
    PUT(text, "[");
    for (Py_ssize_t i = 0; i < count && !text->failed; i++) {
        PyObject *value = PyTuple_GetItem(row, i);
        int is_text = Py_TYPE(value) == &PyUnicode_Type;
        Py_ssize_t length = is_text ? PyUnicode_GetLength(value) : Py_TYPE(value) == &PyBytes_Type ? PyBytes_Size(value) : 0;
        if (i) PUT(text, ",");
        if (length <= longest) put_packed(text, value, checker, DEEPEST);
        else if (is_text && is_recording(self)) put_long(text, value, length, checker);
        else text->failed = 1;
    }
    PUT(text, "]");
}

// rows(query, rows): an event ``rows`` of kinds/query.py; ``rows``: a list of tuples.
PyObject *quick_rows(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    PyObject *result = NULL;
    if (count != 2 || Py_TYPE(given[1]) != &PyList_Type || !is_own_ring(self)) Py_RETURN_NONE;
    PyObject *checker = checker_of(self);
    if (checker != NULL && BEGIN(self, &text, "rows", NULL) == 0) {
        PUT(&text, "{\"query\":");
        if (!put_number(&text, given[0])) text.failed = 1;
        PUT(&text, ",\"rows\":[");
        size_t before = text.length;
        for (Py_ssize_t i = 0; !text.failed && i < PyList_Size(given[1]); i++) {
            PyObject *row = PyList_GetItem(given[1], i);
            if (i) PUT(&text, ",");
            if (Py_TYPE(row) != &PyTuple_Type || text.length - before > self->most) text.failed = 1;
            else put_row(&text, self, row, (Checker *)checker);
        }
        if (text.length - before > self->most) text.failed = 1;
        PUT(&text, "]}");
        result = end_event(self, &text, NULL, 0);
    }
    Py_XDECREF(checker);
    return result != NULL ? result : not_plain(NULL);
}
