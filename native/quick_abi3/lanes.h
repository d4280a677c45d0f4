// Who runs, and in which lane of which request: what context.py finds out, without Python code in between as long as asyncio or threads
// are all that tells lanes apart.
#pragma once
#include "ring.h"

// Once for each process, also where it was forked, before anything else.
void prepare_lanes(void);

// As ``place`` of context.py; -1 with an error. Python code may run in it.
int find_place(Quick *self, unsigned long long *number, unsigned long long *lane);

// Once; -1 with an error.
int make_lane_types(void);

// Once: the class of most requests; -1 with an error.
int know_requests(PyObject *class);

// The number of a request; 0 with an error.
unsigned long long number_of_request(PyObject *request);

// Whether they are found here, and not in Python.
int are_lanes_found_here(void);

// ``begin`` of context.py: the token, which ends it.
PyObject *begin_request(PyObject *request);

// ``end`` of context.py; -1 with an error.
int end_request(PyObject *token);

// A reference to the one that the running code works for; NULL where there is none, perhaps with an error.
PyObject *running_request(const Quick *self);

// Whether there is one.
int works_for_a_request(const Quick *self);

// As itertools.count(1), for a request or a lane: made in a fifth of the time.
PyObject *new_count(void);

// here() -> the lane of the running code, as ``_here`` of context.py.
PyObject *module_here(PyObject *module, PyObject *nothing);

// bear() -> a birth, as ``bear`` of context.py.
PyObject *module_bear(PyObject *module, PyObject *nothing);

// lanes(request, lane, born, of_thread, birth) -> bool: what ``here`` and ``bear`` go by: three variables, what is known of each thread, the
// class ``Birth``. False: this Python lets nobody set a variable from here.
PyObject *module_lanes(PyObject *module, PyObject *given);

// leave_lanes(): they are found in Python from now on.
PyObject *module_leave_lanes(PyObject *module, PyObject *nothing);
