// Requests that the service handles.
#pragma once
#include "python.h"

// requests(class, recorder, describe, write, failed, before_end): what ``Quick.arrived`` goes by: the class ``Handling``; who numbers requests; a
// function that tells later of what was written; one that writes ``(handling, headers)`` where the part in C has refused it; one that
// tells ``(handling, error)``; and the list of that name.
PyObject *module_requests(PyObject *module, PyObject *given);

// Have a handling say at its end which mapping a router wrote to, see ``routed`` of servers/handling.py; -1 with an error.
int set_routed(PyObject *handling, PyObject *scope);

// ``at_rest`` of one; -1 with an error.
int set_at_rest(PyObject *handling, PyObject *value);

// Whether a request is of that class.
int is_handling(PyObject *request);

// A borrowed reference to the one of them that numbers requests; NULL where nobody is known.
PyObject *the_recorder(void);

// Handling(number, about), with the next number, without the Python code that says the same; from then on it is that of the context. NULL with an error.
PyObject *begin_handling(PyObject *about);

// ``write_start``; -1 with an error.
int write_in_python(PyObject *handling, PyObject *headers);

// What went wrong in here is none of the service's business: the recorder is switched off, as ``attempt`` of guard.py does it. -1: the error that is
// set is to be passed on.
int switch_off_at_error(void);

// What is known of an answer, as long as it is plain: then only C holds it. Each may be NULL; ``headers``: a tuple; ``body``: bytes.
typedef struct {
    PyObject *status, *headers, *body;
} Answer;

void forget_answer(Answer *answer);

// Give the handling what is known of its answer; -1 with an error.
int hand_over(PyObject *handling, Answer *answer);

// ``failed`` of a handling, by the error that is set, and is set again; one that comes out of telling it goes first.
void fail_handling(PyObject *handling);

// ``ended`` of a handling, whose answer is forgotten then. An error that is set stays; one that comes out of this goes first.
void end_handling(PyObject *handling, Answer *answer);
