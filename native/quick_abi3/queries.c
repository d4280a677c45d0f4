// Statements of SQLite, and rows. See methods.h, kinds/query.py, kinds/sqlite.py.
#include "queries.h"

#include "calls.h"
#include "methods.h"
#include "values.h"

// Attributes of a cursor of SQLite's own class, which are read without looking them up in it. Up to 3.9 they are looked up.
typedef struct {
    PyObject *name, *descriptor;
    descrgetfunc get;
} Member;
enum { ROWCOUNT, DESCRIPTION, LASTROWID, CONNECTION, MEMBERS };
static Member members[MEMBERS];
static PyTypeObject *own_cursor;

int find_members(PyObject *cursor) {
    PyObject *names[] = {name_rowcount, name_description, name_lastrowid, name_connection};
    for (int i = 0; i < MEMBERS; i++) {
        members[i].name = names[i];
        if ((members[i].descriptor = PyObject_GetAttr(cursor, names[i])) == NULL) return -1;
        members[i].get = (descrgetfunc)PyType_GetSlot(Py_TYPE(members[i].descriptor), Py_tp_descr_get);
        if (members[i].get == NULL) PyErr_Clear();
    }
    own_cursor = (PyTypeObject *)kept(cursor);
    return 0;
}

static PyObject *member_of(PyObject *cursor, int which) {
    const Member *member = &members[which];
    if (Py_TYPE(cursor) == own_cursor && member->get != NULL) return member->get(member->descriptor, cursor, (PyObject *)own_cursor);
    return PyObject_GetAttr(cursor, which == ROWCOUNT ? name_rowcount : which == DESCRIPTION ? name_description : which == LASTROWID ? name_lastrowid : name_connection);
}

// The JSON of what a statement asks a database, up to its parameters: a reference to bytes. NULL, perhaps with an error: it is new.
static PyObject *begin_of_asked(Quick *self, Checker *checker, PyObject *statement, PyObject *database) {
    PyObject *json = json_of_statement(checker, statement, database);
    if (json != NULL) return kept(json);
    PyObject *texts = PyObject_GetAttr(self->scrubber, name_texts), *key = NULL;
    if (texts != NULL && Py_TYPE(texts) == &PyDict_Type) key = PyTuple_Pack(4, name_asked, name_sqlite, database, statement);
    PyObject *begin = key != NULL ? PyDict_GetItem(texts, key) : NULL;
    // ASCII; what an error of the encoding would run comes only after the last look at what is borrowed.
    if (begin != NULL && Py_TYPE(begin) == &PyUnicode_Type) json = PyUnicode_AsASCIIString(begin);
    if (json != NULL && Py_TYPE(database) == &PyUnicode_Type) remember_statement(checker, statement, database, json);
    Py_XDECREF(key);
    Py_XDECREF(texts);
    return json;
}

int ask_sqlite(Quick *self, Asked *asked, PyObject *cursor, PyObject *statement, PyObject *parameters) {
    char *p;
    Py_ssize_t n;
    if (Py_TYPE(statement) != &PyUnicode_Type) return 0;
    if (parameters != NULL && parameters != Py_None && Py_TYPE(parameters) != &PyTuple_Type && Py_TYPE(parameters) != &PyList_Type) return 0;
    PyObject *checker = checker_of(self), *connection = checker != NULL ? member_of(cursor, CONNECTION) : NULL;
    PyObject *database = connection != NULL ? PyObject_GetAttr(connection, name_database) : NULL;
    PyObject *begin = database != NULL ? begin_of_asked(self, (Checker *)checker, statement, database) : NULL;
    asked->began = now(CLOCK_MONOTONIC);
    text_begin(&asked->json);
    if (begin == NULL || PyBytes_AsStringAndSize(begin, &p, &n) < 0) {
        asked->json.failed = 1;
    } else {
        put(&asked->json, p, (size_t)n);
        if (parameters != NULL && parameters != Py_None && PyObject_Size(parameters)) {
            PUT(&asked->json, ",\"parameters\":");
            put_values(self, &asked->json, parameters, (Checker *)checker);
        }
        PUT(&asked->json, "}");
    }
    PyObject *held[] = {checker, connection, database, begin};
    for (int i = 0; i < 4; i++) Py_XDECREF(held[i]);
    if (!asked->json.failed) return 1;
    text_end(&asked->json);
    if (is_to_be_passed_on()) return -1;
    PyErr_Clear();
    return 0;
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

PyObject *note_executed(Quick *self, unsigned long long began, const char *asked, size_t size, PyObject *cursor) {
    Text text;
    PyObject *result = NULL, *checker = NULL;
    unsigned long long ended = now(CLOCK_MONOTONIC);
    if (!is_recording(self)) Py_RETURN_NONE;
    PyObject *rowcount = member_of(cursor, ROWCOUNT), *columns = member_of(cursor, DESCRIPTION);
    PyObject *last = columns == Py_None ? member_of(cursor, LASTROWID) : NULL;
    int is_known = rowcount != NULL && columns != NULL && (columns != Py_None || last != NULL);
    if (is_known && columns != Py_None) is_known = (checker = checker_of(self)) != NULL;
    if (is_known && BEGIN(self, &text, "query", NULL) == 0) {
        PUT(&text, "{\"asked\":");
        put(&text, asked, size);
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
        if (result != Py_None && columns != Py_None && PyObject_SetAttr(cursor, name_rows, result) < 0) PyErr_Clear();
    }
    PyObject *held[] = {checker, rowcount, columns, last};
    for (int i = 0; i < 4; i++) Py_XDECREF(held[i]);
    return result != NULL ? result : not_plain(NULL);
}

// executed(asked, cursor): as ``note_executed``, with what ``asked`` gave.
PyObject *quick_executed(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    char *p;
    Py_ssize_t n;
    unsigned long long began;
    if (count != 2 || PyBytes_AsStringAndSize(given[0], &p, &n) < 0 || n < BEGAN) return not_plain(NULL);
    memcpy(&began, p, BEGAN);
    return note_executed((Quick *)object, began, p + BEGAN, (size_t)n - BEGAN, given[1]);
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
