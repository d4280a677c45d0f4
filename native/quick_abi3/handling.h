// Requests that the service handles.
#pragma once
#include "python.h"

// requests(class, recorder, describe, write, before_end): what ``Quick.arrived`` goes by: the class ``Handling``; who numbers requests; a function
// that tells later of what was written; one that writes ``(handling, headers)`` where the part in C has refused it; and the list of that name.
PyObject *module_requests(PyObject *module, PyObject *given);

// A borrowed reference to the one of them that numbers requests; NULL where nobody is known.
PyObject *the_recorder(void);

// What is known of an answer, as long as it is plain: then only C holds it. Each may be NULL; ``headers``: a tuple; ``body``: bytes.
typedef struct {
    PyObject *status, *headers, *body;
} Answer;

void forget_answer(Answer *answer);

// Give the handling what is known of its answer; -1 with an error.
int hand_over(PyObject *handling, Answer *answer);

// ``ended`` of a handling, whose answer is forgotten then; -1 with an error.
int end_handling(PyObject *handling, Answer *answer);
