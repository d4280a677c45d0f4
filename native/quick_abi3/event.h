// An event from its number to the head of the ring. Whoever calls holds the interpreter's lock, and no Python code runs in between.
//
// A method that makes one returns its number; None where not all was plain, and then it has no number yet and nothing was written, so that the
// Python code makes it.
#pragma once
#include "checker.h"
#include "ring.h"

#include <time.h>

enum { BEGAN = 8 };  // [bytes] of the time in what ``asked`` gives

unsigned long long now(clockid_t clock);  // [ns]

// Begin the text of an event. ``request``: NULL or None for that of the context. -1: nothing is to be written, perhaps with an error.
// Python code may run in it, before the number is taken.
int begin_event(Quick *self, Text *text, const char *kind, size_t kind_size, PyObject *request);
#define BEGIN(self, text, kind, request) begin_event(self, text, kind, sizeof(kind) - 1, request)

// Its number; None where it could not be written here, and then it has no number yet.
PyObject *end_event(Quick *self, Text *text, const char *data, size_t data_size);

// What ends a program (KeyboardInterrupt, SystemExit), raised by a signal's handler while Python code ran for us: the service gets it, as
// everywhere in the recorder (see guard.py).
int is_to_be_passed_on(void);

// None, after what was not plain; NULL where an error is to be passed on. ``text``: or NULL.
PyObject *not_plain(Text *text);

// A reference to the writer of ``recorder`` of recorder.py (or NULL); NULL where nothing is written by it just now.
Quick *writer_of(PyObject *recorder);

// The scrubber's; NULL where there is none, perhaps with an error. Python code may run in it.
PyObject *checker_of(Quick *self);
