// Whether there may be a secret in a text.
//
// It may say of a clean text that there may be one, and then ``Scrubber.text`` of scrub.py looks; of a text with a secret it never says that
// it is clean. So each test here has to find all that its like in scrub.py finds.
#pragma once
#include "text.h"

typedef struct Checker Checker;
extern PyObject *checker_type;  // of what ``make_checker_type`` made
PyObject *make_checker_type(void);

// No: certainly none that ``Scrubber.text`` would find, so that it would return the text as it is.
int may_hold_secret(const Checker *self, const uint8_t *p, size_t n);

// Whether a part of a name that tells a secret is in it, such as "password".
int has_hint(const Checker *self, const uint8_t *p, size_t n);

// Whether a name tells no secret, as ``has_hint``.
int is_harmless_name(Checker *self, const uint8_t *p, size_t n);

// Headers come again and again, name and value the same. The JSON of one that this checker has let pass before, whose length is
// ``LENGTH_OF_PAIR``; NULL: it is not remembered.
#define LENGTH_OF_PAIR(n, m) ((n) + (m) + sizeof("[\"\",\"\"]") - 1)
const char *json_of_pair(const Checker *self, const char *name, size_t n, const char *value, size_t m);

// Remember it, as it was just written: a text that is longer has something in it that is escaped, and is not.
void remember_pair(Checker *self, const char *name, size_t n, size_t m, const char *json, size_t length);

// Statements of SQLite come again and again, as the same objects. The JSON of what is asked by one, up to its parameters (bytes, borrowed);
// NULL: it is not remembered. What was remembered holds for as long as this checker, as nothing has been learned meanwhile.
PyObject *json_of_statement(const Checker *self, PyObject *statement, PyObject *database);
void remember_statement(Checker *self, PyObject *statement, PyObject *database, PyObject *json);

// Something was learned since it was made: another one is to be asked.
int is_outdated(const Checker *self);
