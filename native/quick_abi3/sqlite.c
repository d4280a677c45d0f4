// Methods of SQLite's cursors and connections, where what they do is plain. See methods.h, kinds/sqlite.py, which does it all where it is not.
#include "sqlite.h"

#include "event.h"
#include "methods.h"
#include "queries.h"
#include "quick.h"

static struct {
    PyObject *recorder;                   // has the writer, while there is one
    PyObject *cursor, *connection;        // our classes
    PyObject *execute, *fetchone, *fetchall, *make_cursor;  // of SQLite's own
    PyObject *execute_told, *answered, *failed;             // functions in Python: instead of all; behind a statement that was executed, or was not
    PyObject *fetched, *fetched_all;      // functions in Python: behind rows that were fetched
} sqlite;

enum { MOST_GIVEN = 2 };

// Calls a method with its object and what is given.
static PyObject *call_with(PyObject *method, PyObject *self, PyObject *const *given, Py_ssize_t count) {
    if (PyObject_Vectorcall != NULL && count <= MOST_GIVEN) {
        PyObject *all[1 + MOST_GIVEN] = {self};
        for (Py_ssize_t i = 0; i < count; i++) all[i + 1] = given[i];
        return PyObject_Vectorcall(method, all, (size_t)count + 1, NULL);
    }
    PyObject *all = PyTuple_New(count + 1), *result = NULL;
    if (all == NULL) return NULL;
    for (Py_ssize_t i = 0; i <= count; i++) PyTuple_SetItem(all, i, kept(i ? given[i - 1] : self));
    result = PyObject_Call(method, all, NULL);
    Py_DECREF(all);
    return result;
}

// As ``asked`` gives it to the functions in Python.
static PyObject *bytes_of_asked(const Asked *asked) {
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(BEGAN + asked->json.length));
    char *p;
    Py_ssize_t n;
    if (bytes == NULL || PyBytes_AsStringAndSize(bytes, &p, &n) < 0) return NULL;
    memcpy(p, &asked->began, BEGAN);
    memcpy(p + BEGAN, asked->json.at, asked->json.length);
    return bytes;
}

// A statement was not executed: it is told, and its error is raised on.
static void tell_failure(const Asked *asked) {
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL && PyException_SetTraceback(error, trace) < 0) PyErr_Clear();
    PyObject *bytes = bytes_of_asked(asked), *done = bytes != NULL ? PyObject_CallFunctionObjArgs(sqlite.failed, bytes, error, NULL) : NULL;
    Py_XDECREF(bytes);
    if (done == NULL) {  // what a signal's handler raised goes first
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        return;
    }
    Py_DECREF(done);
    PyErr_Restore(type, error, trace);
}

// It was executed: told, and the cursor returned; NULL with an error that is to be passed on.
static PyObject *tell_executed(Quick *writer, const Asked *asked, PyObject *cursor) {
    PyObject *seq = note_executed(writer, asked->began, asked->json.at, asked->json.length, cursor);
    if (seq == Py_None) {
        PyObject *bytes = bytes_of_asked(asked);
        Py_DECREF(seq);
        seq = bytes != NULL ? PyObject_CallFunctionObjArgs(sqlite.answered, bytes, cursor, NULL) : NULL;
        Py_XDECREF(bytes);
    }
    if (seq == NULL) Py_CLEAR(cursor);
    Py_XDECREF(seq);
    return cursor;
}

// Cursor.execute(statement, parameters)
static PyObject *cursor_execute(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    PyObject *rows = PyObject_GetAttr(self, name_rows), *value = NULL;
    if (rows == NULL) return NULL;
    // Where it is a number, all that was fetched from the last query is told.
    int is_settled = rows == Py_None || (Py_TYPE(rows) == &PyLong_Type && PyObject_SetAttr(self, name_rows, Py_None) == 0);
    Quick *writer = is_settled && count > 0 && count <= MOST_GIVEN ? writer_of(sqlite.recorder) : NULL;
    Py_DECREF(rows);
    if (!is_settled) PyErr_Clear();
    Asked asked;
    int is_asked = writer != NULL ? ask_sqlite(writer, &asked, self, given[0], count > 1 ? given[1] : NULL) : 0;
    if (is_asked != 1) {
        Py_XDECREF(writer);
        return is_asked < 0 ? NULL : call_with(sqlite.execute_told, self, given, count);
    }
    value = call_with(sqlite.execute, self, given, count);
    if (value == NULL) tell_failure(&asked);
    else value = tell_executed(writer, &asked, value);
    text_end(&asked.json);
    Py_DECREF(writer);
    return value;
}

// Rows of a query were fetched, which has a number and nothing else: told here if that goes. 0: not; -1: an error is to be passed on.
static int tell_rows(PyObject *query, PyObject *rows) {
    PyObject *writer = (PyObject *)writer_of(sqlite.recorder), *both[] = {query, rows};
    PyObject *seq = writer != NULL ? quick_rows(writer, both, 2) : NULL;
    int is_told = seq == NULL ? (PyErr_Occurred() ? -1 : 0) : seq != Py_None;
    Py_XDECREF(seq);
    Py_XDECREF(writer);
    return is_told;
}

static PyObject *told_behind(PyObject *function, PyObject *self, PyObject *rows) {
    PyObject *done = PyObject_CallFunctionObjArgs(function, self, rows, NULL);
    if (done == NULL) Py_CLEAR(rows);
    Py_XDECREF(done);
    return rows;
}

// Cursor.fetchone()
static PyObject *cursor_fetchone(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    PyObject *row = PyObject_CallFunctionObjArgs(sqlite.fetchone, self, NULL), *query = row != NULL ? PyObject_GetAttr(self, name_rows) : NULL;
    if (query == NULL) Py_CLEAR(row);
    if (row == NULL || query == Py_None) {
        Py_XDECREF(query);
        return row;
    }
    int is_told = 0;
    if (row == Py_None && Py_TYPE(query) == &PyLong_Type) is_told = PyObject_SetAttr(self, name_rows, Py_None) == 0;
    long long number = row != Py_None && Py_TYPE(query) == &PyLong_Type ? PyLong_AsLongLong(query) : 0;
    PyObject *less = number > 0 ? PyLong_FromLongLong(-number) : NULL, *rows = less != NULL ? PyList_New(1) : NULL;
    if (rows != NULL) {
        Py_INCREF(row);
        PyList_SetItem(rows, 0, row);
        is_told = tell_rows(query, rows);
        if (is_told == 1 && PyObject_SetAttr(self, name_rows, less) < 0) PyErr_Clear();
    }
    Py_XDECREF(rows);
    Py_XDECREF(less);
    Py_DECREF(query);
    if (is_told < 0) Py_CLEAR(row);
    else PyErr_Clear();
    return row == NULL || is_told ? row : told_behind(sqlite.fetched, self, row);
}

// Cursor.fetchall()
static PyObject *cursor_fetchall(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    PyObject *rows = PyObject_CallFunctionObjArgs(sqlite.fetchall, self, NULL), *query = rows != NULL ? PyObject_GetAttr(self, name_rows) : NULL;
    if (query == NULL) Py_CLEAR(rows);
    if (rows == NULL || query == Py_None) {
        Py_XDECREF(query);
        return rows;
    }
    long long number = Py_TYPE(query) == &PyLong_Type ? PyLong_AsLongLong(query) : 0;
    int is_told = 0;
    if (number > 0 && Py_TYPE(rows) == &PyList_Type) is_told = PyList_Size(rows) ? tell_rows(query, rows) : 1;
    Py_DECREF(query);
    if (is_told < 0) Py_CLEAR(rows);
    return rows == NULL || is_told ? rows : told_behind(sqlite.fetched_all, self, rows);
}

// Connection.execute(statement, parameters)
static PyObject *connection_execute(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    PyObject *cursor = (PyObject *)Py_TYPE(self) == sqlite.connection ? PyObject_CallFunctionObjArgs(sqlite.make_cursor, self, sqlite.cursor, NULL)
                                                                      : PyObject_CallMethod(self, "cursor", NULL);
    if (cursor == NULL) return NULL;
    PyObject *result = NULL, *execute, *all;
    if ((PyObject *)Py_TYPE(cursor) == sqlite.cursor) {
        result = cursor_execute(cursor, given, count);
    } else if ((execute = PyObject_GetAttr(cursor, name_execute)) != NULL) {
        if ((all = PyTuple_New(count)) != NULL) {
            for (Py_ssize_t i = 0; i < count; i++) PyTuple_SetItem(all, i, kept(given[i]));
            result = PyObject_Call(execute, all, NULL);
            Py_DECREF(all);
        }
        Py_DECREF(execute);
    }
    Py_DECREF(cursor);
    return result;
}

static PyMethodDef of_cursor[] = {{"execute", FAST(cursor_execute), METH_FASTCALL, NULL},
                                  {"fetchone", cursor_fetchone, METH_NOARGS, NULL},
                                  {"fetchall", cursor_fetchall, METH_NOARGS, NULL}};
static PyMethodDef of_connection = {"execute", FAST(connection_execute), METH_FASTCALL, NULL};

// sqlite(recorder, cursor, connection, execute, fetchone, fetchall, make_cursor, execute_told, answered, failed, fetched, fetched_all) -> bool
PyObject *module_sqlite(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject **places[] = {&sqlite.recorder, &sqlite.cursor,      &sqlite.connection,   &sqlite.execute,  &sqlite.fetchone, &sqlite.fetchall,
                           &sqlite.make_cursor, &sqlite.execute_told, &sqlite.answered, &sqlite.failed, &sqlite.fetched, &sqlite.fetched_all};
    enum { PARTS = sizeof places / sizeof *places };
    if (sqlite.recorder != NULL) Py_RETURN_FALSE;
    if (PyTuple_Size(given) != PARTS || !PyType_Check(PyTuple_GetItem(given, 1)) || !PyType_Check(PyTuple_GetItem(given, 2)))
        return PyErr_Format(PyExc_TypeError, "sqlite takes the recorder, two classes and nine functions");
    for (int i = 0; i < PARTS; i++) {
        *places[i] = PyTuple_GetItem(given, i);
        Py_INCREF(*places[i]);
    }
    if (find_members(sqlite.cursor) < 0) return NULL;
    for (int i = 0; i < 3; i++)
        if (put_method(sqlite.cursor, &of_cursor[i]) < 0) return NULL;
    if (put_method(sqlite.connection, &of_connection) < 0) return NULL;
    Py_RETURN_TRUE;
}
