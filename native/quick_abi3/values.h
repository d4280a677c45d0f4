// Values of Python as JSON, as long as they are plain. No Python code runs in here as long as nothing fails; a failure makes an exception,
// so the garbage collector may run, and any code with it: nothing that was borrowed is looked at after one.
#pragma once
#include "checker.h"

enum { DEEPEST = 12 };

// The bytes of a str that is ASCII, or of bytes; -1 otherwise. ``held`` is to be let go.
int bytes_of(PyObject *value, PyObject **held, char **p, Py_ssize_t *n);

// ``checker`` NULL: nothing in it is secret.
void put_text(Text *text, PyObject *value, const Checker *checker);

// None, booleans, integers of 64 bits, finite floats; returns 0 for any other type.
int put_number(Text *text, PyObject *value);

// As ``encode`` of recorder.py.
void put_json(Text *text, PyObject *value, int depth);

// As ``pack`` of values.py, where every text in it is clean and it holds nothing but plain values, bytes that are UTF-8, and lists.
void put_packed(Text *text, PyObject *value, const Checker *checker, int depth);

// The items of a list or tuple, each as ``put_packed``.
void put_items(Text *text, PyObject *values, const Checker *checker, int depth);

// A name or value of a header: bytes, of which each is a character, or str.
void put_header(Text *text, PyObject *part, Checker *checker, int is_name);

// A header: both as ``put_header``, in brackets.
void put_pair(Text *text, PyObject *name, PyObject *value, Checker *checker);
