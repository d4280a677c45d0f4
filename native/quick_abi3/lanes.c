// See lanes.h.
#include "lanes.h"

#include "event.h"
#include "fields.h"
#include "methods.h"

static PyObject *get(PyObject *variable) {
    PyObject *value = NULL;
    if (PyContextVar_Get != NULL) return PyContextVar_Get(variable, NULL, &value) < 0 ? NULL : value;
    return PyObject_CallMethod(variable, "get", NULL);
}


// asyncio's functions, once it is there; ``tasks``: the dictionary that ``current_task`` looks into, where it is a function in Python.
static PyObject *running_loop, *current_task, *tasks;

// What asyncio keeps of the running loop in the dictionary of each thread, in CPython up to 3.11, which gets no more changes of this kind.
typedef struct {
    PyObject_HEAD
    PyObject *loop;
    pid_t pid;
} Holder;
static PyTypeObject *holder_type;  // NULL: none was seen yet that is one
static pid_t own_pid;

void prepare_lanes(void) { own_pid = getpid(); }

// Whether an object in that place is a ``Holder``, since it is as long as one and holds the loop that asyncio has just told.
static int is_holder(PyObject *object, PyObject *loop) {
    PyObject *name = PyObject_GetAttr((PyObject *)Py_TYPE(object), name_name);
    PyObject *size = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__basicsize__");
    int is_one = name != NULL && size != NULL && PyUnicode_Check(name) && !PyUnicode_CompareWithASCIIString(name, "_RunningLoopHolder") &&
                 PyLong_AsLong(size) == sizeof(Holder) && ((Holder *)object)->pid == own_pid && ((Holder *)object)->loop == loop;
    Py_XDECREF(name);
    Py_XDECREF(size);
    if (PyErr_Occurred()) PyErr_Clear();
    return is_one;
}

// A reference to what ``asyncio._get_running_loop()`` gives. Up to 3.11 that asks the kernel for the number of the process each time, which
// takes as long as all else of an event; so from the second time on it is read where that function finds it.
static PyObject *loop_that_runs(void) {
    PyObject *of_thread = PyThreadState_GetDict(), *holder = of_thread != NULL ? PyDict_GetItem(of_thread, name_running_loop) : NULL;
    if (holder != NULL && Py_TYPE(holder) == holder_type && ((Holder *)holder)->pid == own_pid) {
        PyObject *loop = ((Holder *)holder)->loop;
        Py_INCREF(loop);
        return loop;
    }
    if (of_thread != NULL && holder == NULL && holder_type != NULL) Py_RETURN_NONE;  // a thread in which no loop has ever run
    PyObject *loop = PyObject_CallFunctionObjArgs(running_loop, NULL);
    if (holder != NULL && holder_type == NULL && loop != NULL && loop != Py_None && is_holder(holder, loop)) {
        holder_type = Py_TYPE(holder);
        Py_INCREF(holder_type);
    }
    return loop;
}

// A reference to what ``asyncio.current_task(loop)`` gives.
static PyObject *task_that_runs(PyObject *loop) {
    if (tasks == NULL) return PyObject_CallFunctionObjArgs(current_task, loop, NULL);
    PyObject *task = PyDict_GetItemWithError(tasks, loop);
    if (task == NULL && PyErr_Occurred()) return NULL;
    if (task == NULL) task = Py_None;
    Py_INCREF(task);
    return task;
}

// asyncio's functions, where it is there; -1 with an error.
static int find_asyncio(void) {
    PyObject *asyncio = PyDict_GetItem(PyImport_GetModuleDict(), name_asyncio);
    if (asyncio == NULL) return 0;
    Py_INCREF(asyncio);  // a module that is imported when it is needed may put another one in its place
    int is_there = PyObject_HasAttrString(asyncio, "current_task");
    if (is_there && current_task == NULL) current_task = PyObject_GetAttrString(asyncio, "current_task");
    if (is_there && current_task != NULL && tasks == NULL) {
        PyObject *globals = PyObject_GetAttrString(current_task, "__globals__");  // of a function in C there are none
        PyErr_Clear();
        PyObject *known = globals != NULL && Py_TYPE(globals) == &PyDict_Type ? PyDict_GetItem(globals, name_current_tasks) : NULL;
        if (known != NULL && Py_TYPE(known) == &PyDict_Type) {
            Py_INCREF(known);
            tasks = known;
        }
        Py_XDECREF(globals);
    }
    if (is_there && current_task != NULL) running_loop = PyObject_GetAttrString(asyncio, "_get_running_loop");
    Py_DECREF(asyncio);
    return is_there && running_loop == NULL ? -1 : 0;
}

// As ``_who`` in context.py.
static int who_runs(unsigned long long *who) {
    *who = PyThread_get_thread_ident();
    if (running_loop == NULL && find_asyncio() < 0) return -1;
    if (running_loop == NULL) return 0;
    PyObject *loop = loop_that_runs();
    if (loop == NULL) return -1;
    if (loop != Py_None) {
        PyObject *task = task_that_runs(loop);
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
    PyObject *of_thread, *birth;
    int are_found_here;
} lanes;

enum { LANE_BITS = 52 };

int are_lanes_found_here(void) { return lanes.are_found_here; }

PyObject *begin_request(PyObject *request) { return PyContextVar_Set(lanes.request, request); }

int end_request(PyObject *token) {
    int result = -1;
    if (PyContextVar_Reset != NULL) {
        result = PyContextVar_Reset(lanes.request, token);
    } else {
        PyObject *done = PyObject_CallMethod(lanes.request, "reset", "O", token);
        if (done != NULL) result = 0;
        Py_XDECREF(done);
    }
    if (result == 0 || !PyErr_ExceptionMatches(PyExc_ValueError)) return result;
    PyErr_Clear();  // in another context than it was begun in
    return 0;
}

PyObject *running_request(const Quick *self) {
    PyObject *request = get(lanes.request);
    if (request == self->outside) Py_CLEAR(request);
    return request;
}

int works_for_a_request(const Quick *self) {
    PyObject *request = running_request(self);
    Py_XDECREF(request);
    return request != NULL;
}

// Counts from 1 on; Python code may ask for the next number as well.
typedef struct {
    PyObject_HEAD
    unsigned long long last;
} Count;

static PyTypeObject *count_type;

static void count_gone(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *count_next(PyObject *object) { return PyLong_FromUnsignedLongLong(++((Count *)object)->last); }

static PyType_Slot count_slots[] = {{Py_tp_dealloc, count_gone}, {Py_tp_iter, itself}, {Py_tp_iternext, count_next}, {0, NULL}};
static PyType_Spec count_spec = {"relive_recorder._quick.Count", sizeof(Count), 0, Py_TPFLAGS_DEFAULT, count_slots};

PyObject *new_count(void) { return ((allocfunc)PyType_GetSlot(count_type, Py_tp_alloc))(count_type, 0); }

// Numbers that are held as objects of Python were made by the recorder, so that each fits.
static unsigned long long number_in(PyObject *object) { return PyLong_AsUnsignedLongLongMask(object); }

// 0 with an error.
static unsigned long long taken(PyObject *number) {
    unsigned long long value = number != NULL ? number_in(number) : 0;
    Py_XDECREF(number);
    return value;
}

// What is next of a counter, in C or of itertools; 0 with an error.
static unsigned long long next_of(PyObject *counter) {
    return Py_TYPE(counter) == count_type ? ++((Count *)counter)->last : taken(PyIter_Next(counter));
}

// What lies in objects of ``Birth`` and of most requests.
static Field birth_request, birth_number, birth_who, request_number, request_lanes;

int know_requests(PyObject *class) {
    return find_field(&request_number, class, name_number) < 0 || find_field(&request_lanes, class, name_lanes) < 0 ? -1 : 0;
}

unsigned long long number_of_request(PyObject *request) { return taken(get_field(&request_number, request)); }

// The number of a lane that was born for ``who``; 0: another one's, or none. A new one's ``who`` is noted.
static unsigned long long number_at_birth(PyObject *birth, PyObject *request, PyObject *who) {
    unsigned long long number = 0;
    if ((PyObject *)Py_TYPE(birth) != lanes.birth) return 0;
    PyObject *for_request = get_field(&birth_request, birth);
    if (for_request == request) {
        unsigned long long known = taken(get_field(&birth_who, birth));
        if ((known == 0 || known == number_in(who)) && !PyErr_Occurred() && set_field(&birth_who, birth, who) == 0)
            number = taken(get_field(&birth_number, birth));
    }
    Py_XDECREF(for_request);
    return number;
}

// The number of a lane of this request that ``who`` was born in, by the variable or as a thread; 0: none, perhaps with an error.
static unsigned long long number_born(PyObject *request, PyObject *who) {
    PyObject *birth = get(lanes.born);
    unsigned long long known = birth != NULL ? number_at_birth(birth, request, who) : 0;
    Py_XDECREF(birth);
    if (known || PyErr_Occurred()) return known;
    birth = PyObject_GetAttr(lanes.of_thread, name_birth);
    if (birth != NULL) known = number_at_birth(birth, request, who);
    Py_XDECREF(birth);
    return known;
}

// A lane that the running thread or task was not in before; NULL with an error.
static PyObject *enter_lane(PyObject *request, unsigned long long runs) {
    PyObject *who = PyLong_FromUnsignedLongLong(runs), *counter = get_field(&request_lanes, request), *number = NULL, *count = NULL, *lane = NULL;
    if (who != NULL && counter != NULL) {
        // Who bears a lane is in one of the same request: before the first there is none that was born.
        int is_first = Py_TYPE(counter) == count_type && ((Count *)counter)->last == 0;
        unsigned long long known = is_first ? 0 : number_born(request, who);
        if (!known && !PyErr_Occurred()) known = next_of(counter);
        if (known) number = PyLong_FromUnsignedLongLong(known);
    }
    if (number != NULL && (count = new_count()) != NULL) lane = PyTuple_Pack(4, request, who, number, count);
    PyObject *token = lane != NULL ? PyContextVar_Set(lanes.lane, lane) : NULL;
    if (token == NULL) Py_CLEAR(lane);
    PyObject *held[] = {who, counter, number, count, token};
    for (int i = 0; i < 5; i++) Py_XDECREF(held[i]);
    return lane;
}

PyObject *module_here(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    unsigned long long who;
    PyObject *request = get(lanes.request), *known = get(lanes.lane), *lane = NULL;
    if (request != NULL && known != NULL && who_runs(&who) == 0) {
        int is_here = known != Py_None && PyTuple_GetItem(known, 0) == request && number_in(PyTuple_GetItem(known, 1)) == who;
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


// Birth(request, number), without the Python code that says the same.
static PyObject *make_birth(PyObject *request, unsigned long long number) {
    static PyObject *nobody;
    if (nobody == NULL) nobody = PyLong_FromLong(0);
    PyObject *held = PyLong_FromUnsignedLongLong(number), *birth = NULL;
    if (held != NULL && nobody != NULL) birth = ((allocfunc)PyType_GetSlot((PyTypeObject *)lanes.birth, Py_tp_alloc))((PyTypeObject *)lanes.birth, 0);
    if (birth != NULL && (set_field(&birth_request, birth, request) < 0 || set_field(&birth_number, birth, held) < 0 ||
                          set_field(&birth_who, birth, nobody) < 0))
        Py_CLEAR(birth);
    Py_XDECREF(held);
    return birth;
}

PyObject *module_bear(PyObject *module, PyObject *Py_UNUSED(nothing)) {
    PyObject *lane = module_here(module, NULL), *birth = NULL, *next = NULL, *pair = NULL;
    unsigned long long count = lane != NULL ? next_of(PyTuple_GetItem(lane, 3)) : 0;
    if (count && (next = PyLong_FromUnsignedLongLong(count)) != NULL) pair = PyTuple_Pack(2, PyTuple_GetItem(lane, 2), next);
    if (pair != NULL) {
        const unsigned long long within = 1ull << LANE_BITS;
        // Of integers a hash is the same in every process.
        unsigned long long number = (unsigned long long)PyObject_Hash(pair) & (within - 1);
        number |= number_in(PyTuple_GetItem(lane, 2)) & within;
        if (!PyErr_Occurred()) birth = make_birth(PyTuple_GetItem(lane, 0), number);
    }
    Py_XDECREF(pair);
    Py_XDECREF(next);
    Py_XDECREF(lane);
    return birth;
}

// born() -> what ``task_of(bear())`` of context.py gives.
PyObject *quick_born(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    Quick *self = (Quick *)object;
    if (!lanes.are_found_here || !is_own_ring(self) || self->words[MODE] == 0) Py_RETURN_NONE;
    PyObject *birth = module_bear(NULL, NULL), *token = birth != NULL ? PyContextVar_Set(lanes.born, birth) : NULL;
    Py_XDECREF(birth);
    return token != NULL ? token : not_plain(NULL);
}

// A function that is called once, in a context of its own: there it is in the lane of its birth.
typedef struct {
    PyObject_HEAD
    PyObject *function, *birth;
} InLane;

static PyTypeObject *in_lane_type;

static int in_lane_traverse(PyObject *object, visitproc visit, void *arg) {
    InLane *self = (InLane *)object;
    Py_VISIT(self->function);
    Py_VISIT(self->birth);
    return 0;
}

static int in_lane_clear(PyObject *object) {
    InLane *self = (InLane *)object;
    Py_CLEAR(self->function);
    Py_CLEAR(self->birth);
    return 0;
}

static void in_lane_gone(PyObject *object) { let_go(object, in_lane_clear); }

static PyObject *in_lane_call(PyObject *object, PyObject *given, PyObject *named) {
    InLane *self = (InLane *)object;
    PyObject *token = PyContextVar_Set(lanes.born, self->birth);
    if (token == NULL) return NULL;
    Py_DECREF(token);
    return PyObject_Call(self->function, given, named);
}

static PyType_Slot in_lane_slots[] = {
    {Py_tp_dealloc, in_lane_gone}, {Py_tp_traverse, in_lane_traverse}, {Py_tp_clear, in_lane_clear}, {Py_tp_call, in_lane_call}, {0, NULL}};
static PyType_Spec in_lane_spec = {"relive_recorder._quick.InLane", sizeof(InLane), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, in_lane_slots};

int make_lane_types(void) {
    request_number.name = name_number;
    request_lanes.name = name_lanes;
    in_lane_type = (PyTypeObject *)PyType_FromSpec(&in_lane_spec);
    count_type = (PyTypeObject *)PyType_FromSpec(&count_spec);
    return in_lane_type != NULL && count_type != NULL ? 0 : -1;
}

// in_lane(function) -> the same function, for a context that is a copy of the running one and serves nothing else.
PyObject *quick_in_lane(PyObject *object, PyObject *function) {
    Quick *self = (Quick *)object;
    if (!lanes.are_found_here || !is_own_ring(self) || self->words[MODE] == 0) Py_RETURN_NONE;
    PyObject *birth = module_bear(NULL, NULL);
    InLane *made = birth != NULL ? (InLane *)((allocfunc)PyType_GetSlot(in_lane_type, Py_tp_alloc))(in_lane_type, 0) : NULL;
    if (made == NULL) {
        Py_XDECREF(birth);
        return not_plain(NULL);
    }
    made->function = kept(function);
    made->birth = birth;
    return (PyObject *)made;
}

PyObject *module_lanes(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject *parts[5];
    if (!PyArg_ParseTuple(given, "OOOOO!", &parts[0], &parts[1], &parts[2], &parts[3], &PyType_Type, &parts[4])) return NULL;
    PyObject **places[] = {&lanes.request, &lanes.lane, &lanes.born, &lanes.of_thread, &lanes.birth};
    for (int i = 0; i < 5; i++) *places[i] = kept(parts[i]);
    if (find_field(&birth_request, lanes.birth, name_request) < 0 || find_field(&birth_number, lanes.birth, name_number) < 0 ||
        find_field(&birth_who, lanes.birth, name_who) < 0)
        return NULL;
    return PyBool_FromLong(lanes.are_found_here = PyContextVar_Set != NULL);
}

PyObject *module_leave_lanes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    lanes.are_found_here = 0;
    Py_RETURN_NONE;
}

int find_place(Quick *self, unsigned long long *number, unsigned long long *lane) {
    PyObject *found = lanes.are_found_here ? module_here(NULL, NULL) : PyObject_CallFunctionObjArgs(self->here, NULL);
    if (found == NULL) return -1;
    PyObject *request = PyTuple_GetItem(found, 0);
    *number = request == NULL || request == self->outside ? 0 : number_of_request(request);
    *lane = number_in(PyTuple_GetItem(found, 2));
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : 0;
}
