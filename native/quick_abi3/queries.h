// What is asked of SQLite, between the moment it is asked and the event of its answer.
#pragma once
#include "event.h"

typedef struct {
    unsigned long long began;  // [ns] of the monotonic clock
    Text json;                 // ``asked`` of the event
} Asked;

// What is given to ``execute`` of a cursor; ``parameters`` may be NULL. 1: it is told, and ``asked->json`` is to be ended. 0: it is not plain,
// or the statement is new. -1: an error is to be passed on.
int ask_sqlite(Quick *self, Asked *asked, PyObject *cursor, PyObject *statement, PyObject *parameters);

// A statement that SQLite has executed, see kinds/sqlite.py; a cursor that gives rows gets the event's number, which is returned. None: it
// is to be told by Python; NULL: an error is to be passed on.
PyObject *note_executed(Quick *self, unsigned long long began, const char *asked, size_t size, PyObject *cursor);

// Once: the class of SQLite's cursors as the recorder has it. -1 with an error.
int find_members(PyObject *cursor);
