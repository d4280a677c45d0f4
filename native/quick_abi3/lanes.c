// See lanes.h.
#include "lanes.h"

static PyObject *get(PyObject *variable) {
    PyObject *value = NULL;
    if (PyContextVar_Get != NULL) return PyContextVar_Get(variable, NULL, &value) < 0 ? NULL : value;
    return PyObject_CallMethod(variable, "get", NULL);
}


// asyncio's functions, once it is there
static PyObject *running_loop, *current_task;

// As ``_who`` in context.py.
static int who_runs(unsigned long long *who) {
    *who = PyThread_get_thread_ident();
    if (running_loop == NULL) {
        PyObject *asyncio = PyDict_GetItem(PyImport_GetModuleDict(), name_asyncio);
        if (asyncio == NULL) return 0;
        Py_INCREF(asyncio);  // a module that is imported when it is needed may put another one in its place
        int is_there = PyObject_HasAttrString(asyncio, "current_task");
        if (is_there && current_task == NULL) current_task = PyObject_GetAttrString(asyncio, "current_task");
        if (is_there && current_task != NULL) running_loop = PyObject_GetAttrString(asyncio, "_get_running_loop");
        Py_DECREF(asyncio);
        if (running_loop == NULL) return is_there ? -1 : 0;
    }
    PyObject *loop = PyObject_CallFunctionObjArgs(running_loop, NULL);
    if (loop == NULL) return -1;
    if (loop != Py_None) {
        PyObject *task = PyObject_CallFunctionObjArgs(current_task, loop, NULL);
        if (task == NULL) {
            Py_DECREF(loop);
            return -1;
        }
        *who = (unsigned long long)(uintptr_t)task | 1;
        Py_DECREF(task);
    }
    Py_DECREF(loop);
    return 0;
}


// What context.py has of lanes, see ``module_lanes``.
static struct {
    PyObject *request, *lane, *born;  // variables
    PyObject *of_thread, *birth, *count;
} lanes;

enum { LANE_BITS = 52 };

static unsigned long long number_of(PyObject *object, PyObject *name) {
    PyObject *held = PyObject_GetAttr(object, name);
    unsigned long long number = held != NULL ? PyLong_AsUnsignedLongLong(held) : 0;
    Py_XDECREF(held);
    return number;
}

// The number of a lane that was born for ``who``; 0: another one's, or none. A new one's ``who`` is noted.
static unsigned long long number_at_birth(PyObject *birth, PyObject *request, PyObject *who) {
    unsigned long long number = 0;
    if ((PyObject *)Py_TYPE(birth) != lanes.birth) return 0;
    PyObject *for_request = PyObject_GetAttr(birth, name_request);
    if (for_request == request) {
        unsigned long long known = number_of(birth, name_who);
        if ((known == 0 || known == PyLong_AsUnsignedLongLong(who)) && !PyErr_Occurred() && PyObject_SetAttr(birth, name_who, who) == 0)
            number = number_of(birth, name_number);
    }
    Py_XDECREF(for_request);
    return number;
}

// A lane that the running thread or task was not in before; NULL with an error.
static PyObject *enter_lane(PyObject *request, unsigned long long runs) {
    PyObject *who = PyLong_FromUnsignedLongLong(runs), *birth = get(lanes.born), *number = NULL, *count = NULL, *lane = NULL;
    unsigned long long known = who != NULL && birth != NULL ? number_at_birth(birth, request, who) : 0;
    if (!known && !PyErr_Occurred()) {
        Py_XDECREF(birth);
        if ((birth = PyObject_GetAttr(lanes.of_thread, name_birth)) != NULL) known = number_at_birth(birth, request, who);
    }
    if (!PyErr_Occurred()) {
        PyObject *numbers = known ? NULL : PyObject_GetAttr(request, name_lanes);
        number = known ? PyLong_FromUnsignedLongLong(known) : numbers != NULL ? PyIter_Next(numbers) : NULL;
        Py_XDECREF(numbers);
        if (number != NULL) count = PyObject_CallFunction(lanes.count, "i", 1);
        if (count != NULL) lane = PyTuple_Pack(4, request, who, number, count);
        PyObject *token = lane != NULL ? PyContextVar_Set(lanes.lane, lane) : NULL;
        if (token == NULL) Py_CLEAR(lane);
        Py_XDECREF(token);
    }
    PyObject *held[] = {who, birth, number, count};
    for (int i = 0; i < 4; i++) Py_XDECREF(held[i]);
    return lane;
}

PyObject *module_here(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    unsigned long long who;
    PyObject *request = get(lanes.request), *known = get(lanes.lane), *lane = NULL;
    if (request != NULL && known != NULL && who_runs(&who) == 0) {
        int is_here = known != Py_None && PyTuple_GetItem(known, 0) == request && PyLong_AsUnsignedLongLong(PyTuple_GetItem(known, 1)) == who;
        if (is_here) {
            lane = known;
            Py_INCREF(lane);
        } else if (!PyErr_Occurred()) {
            lane = enter_lane(request, who);
        }
    }
    Py_XDECREF(request);
    Py_XDECREF(known);
    return lane;
}


PyObject *module_bear(PyObject *module, PyObject *Py_UNUSED(nothing)) {
    PyObject *lane = module_here(module, NULL), *next = lane != NULL ? PyIter_Next(PyTuple_GetItem(lane, 3)) : NULL, *birth = NULL;
    PyObject *pair = next != NULL ? PyTuple_Pack(2, PyTuple_GetItem(lane, 2), next) : NULL;
    if (pair != NULL) {
        const unsigned long long within = 1ull << LANE_BITS;
        // Of integers a hash is the same in every process.
        unsigned long long number = (unsigned long long)PyObject_Hash(pair) & (within - 1);
        number |= PyLong_AsUnsignedLongLong(PyTuple_GetItem(lane, 2)) & within;
        PyObject *held = PyLong_FromUnsignedLongLong(number);
        if (held != NULL && !PyErr_Occurred()) birth = PyObject_CallFunctionObjArgs(lanes.birth, PyTuple_GetItem(lane, 0), held, NULL);
        Py_XDECREF(held);
    }
    Py_XDECREF(pair);
    Py_XDECREF(next);
    Py_XDECREF(lane);
    return birth;
}


PyObject *module_lanes(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject *parts[6];
    if (!PyArg_ParseTuple(given, "OOOOOO", &parts[0], &parts[1], &parts[2], &parts[3], &parts[4], &parts[5])) return NULL;
    PyObject **places[] = {&lanes.request, &lanes.lane, &lanes.born, &lanes.of_thread, &lanes.birth, &lanes.count};
    for (int i = 0; i < 6; i++) {
        Py_INCREF(parts[i]);
        *places[i] = parts[i];
    }
    return PyBool_FromLong(PyContextVar_Set != NULL);
}

int find_place(Quick *self, unsigned long long *number, unsigned long long *lane) {
    int result = -1;
    unsigned long long who;
    PyObject *request = get(self->request), *known = get(self->lane), *found = NULL;
    if (request == NULL || known == NULL) goto end;
    *number = 0;
    if (request != self->outside) {
        PyObject *held = PyObject_GetAttr(request, name_number);
        if (held == NULL) goto end;
        *number = PyLong_AsUnsignedLongLong(held);
        Py_DECREF(held);
    }
    if (known != Py_None && PyTuple_GetItem(known, 0) == request) {
        if (who_runs(&who) < 0) goto end;
        if (PyLong_AsUnsignedLongLong(PyTuple_GetItem(known, 1)) == who) {
            found = known;
            Py_INCREF(found);
        }
    }
    if (found == NULL) found = PyObject_CallFunctionObjArgs(self->here, NULL);
    if (found == NULL) goto end;
    *lane = PyLong_AsUnsignedLongLong(PyTuple_GetItem(found, 2));
    result = PyErr_Occurred() ? -1 : 0;
end:
    Py_XDECREF(request);
    Py_XDECREF(known);
    Py_XDECREF(found);
    return result;
}
