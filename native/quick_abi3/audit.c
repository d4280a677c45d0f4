// See audit.h.
#include "audit.h"

extern void *PyInterpreterState_Get(void) __attribute__((weak));  // from 3.9 on
// Not part of the stable ABI, but the same since 3.8.
extern int PySys_AddAuditHook(int (*)(const char *, PyObject *, void *), void *) __attribute__((weak));

static PyObject *on_open, *name_open;

static int heard(const char *event, PyObject *given, void *Py_UNUSED(data)) {
    // Most of what is heard is of neither kind.
    if (event[0] != 'o' && event[0] != 'c') return 0;
    int is_open = !strcmp(event, "open");
    if (on_open == NULL || (!is_open && strcmp(event, "cpython.PyInterpreterState_Clear")) || !is_own_interpreter()) return 0;  // the hook is called in all of a process
    if (!is_open) {  // the interpreter ends, and a hook in Python would now be gone
        Py_CLEAR(on_open);
        return 0;
    }
    PyObject *result = PyObject_CallFunctionObjArgs(on_open, name_open, given, NULL);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

// listen(function) -> bool: have ``function(event, given)`` called for each event "open"; once. False: this Python has no such hooks.
PyObject *module_listen(PyObject *Py_UNUSED(module), PyObject *function) {
    if (PySys_AddAuditHook == NULL || PyInterpreterState_Get == NULL || on_open != NULL) Py_RETURN_FALSE;
    name_open = PyUnicode_InternFromString("open");
    if (name_open == NULL || PySys_AddAuditHook(heard, NULL) < 0) return NULL;
    Py_INCREF(function);
    on_open = function;
    Py_RETURN_TRUE;
}
