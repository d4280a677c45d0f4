// Log records. See logs.h, methods.h, kinds/logs.py.
#include "logs.h"

#include "event.h"
#include "methods.h"
#include "quick.h"
#include "values.h"

enum { LONGEST_LOG = 8192 };  // [characters] of a text that is kept

static int is_text(PyObject *value) { return value != NULL && Py_TYPE(value) == &PyUnicode_Type; }

// ``"file:line"``, without anything secret being looked for.
static void put_where(Text *text, PyObject *file, PyObject *line) {
    put_text(text, file, NULL);
    if (text->failed) return;
    text->length--;  // behind the quotation mark more comes
    PUT(text, ":");
    put_number(text, line);
    PUT(text, "\"");
}

// Types of which no code of the service runs when they are made text.
static int is_formatted_here(PyObject *value) {
    PyTypeObject *type = Py_TYPE(value);
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || value == Py_None;
}

// A reference to the text of a record whose handlers have made none; NULL, perhaps with an error, where that is not plain.
static PyObject *formatted(PyObject *about) {
    PyObject *message = PyDict_GetItem(about, name_msg), *args = PyDict_GetItem(about, name_args);
    if (!is_text(message) || args == NULL) return NULL;
    if (args == Py_None) return kept(message);
    if (Py_TYPE(args) != &PyTuple_Type) return NULL;
    Py_ssize_t count = PyTuple_Size(args);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!is_formatted_here(PyTuple_GetItem(args, i))) return NULL;
    if (count == 0) return kept(message);
    Py_INCREF(message);
    Py_INCREF(args);
    PyObject *text = PyUnicode_Format(message, args);
    Py_DECREF(args);
    Py_DECREF(message);
    return text;
}

// logged(record): an event ``log-record``, where its text was made, or can be, and it has no exception.
PyObject *quick_logged(PyObject *object, PyObject *record) {
    Quick *self = (Quick *)object;
    Text text;
    PyObject *result = NULL;
    if (!is_own_ring(self) || (self->words[MODE] != RECORD && self->words[MODE] != REPLAY)) Py_RETURN_NONE;
    PyObject *about = PyObject_GetAttr(record, name_dict);
    if (about == NULL || Py_TYPE(about) != &PyDict_Type) {
        Py_XDECREF(about);
        return not_plain(NULL);
    }
    PyObject *names[] = {name_name_of_logger, name_levelname, name_message, name_pathname, name_lineno}, *parts[5];
    PyObject *raised = PyDict_GetItem(about, name_exc_info);
    int is_plain = raised == NULL || raised == Py_None;
    for (int i = 0; i < 5; i++) {
        parts[i] = PyDict_GetItem(about, names[i]);
        if (parts[i] == NULL && i == 2) {
            parts[i] = formatted(about);  // a new reference
            is_plain = is_plain && parts[i] != NULL;
            continue;
        }
        is_plain = is_plain && (i == 4 ? parts[i] != NULL && Py_TYPE(parts[i]) == &PyLong_Type : is_text(parts[i]));
        Py_XINCREF(parts[i]);
    }
    is_plain = is_plain && PyUnicode_GetLength(parts[2]) <= LONGEST_LOG;
    PyObject *checker = is_plain ? checker_of(self) : NULL;
    if (checker != NULL && BEGIN(self, &text, "log-record", NULL) == 0) {
        PUT(&text, "{\"logger\":");
        put_text(&text, parts[0], NULL);
        PUT(&text, ",\"level\":");
        put_text(&text, parts[1], NULL);
        PUT(&text, ",\"text\":");
        put_text(&text, parts[2], (Checker *)checker);
        PUT(&text, ",\"where\":");
        put_where(&text, parts[3], parts[4]);
        PUT(&text, "}");
        result = end_event(self, &text, NULL, 0);
    }
    for (int i = 0; i < 5; i++) Py_XDECREF(parts[i]);
    Py_XDECREF(checker);
    Py_DECREF(about);
    return result != NULL ? result : not_plain(NULL);
}

static struct {
    PyObject *recorder, *real, *told, *slow;  // see ``module_logs``
} logs;

// Logger.callHandlers(record)
static PyObject *call_handlers(PyObject *self, PyObject *given, PyObject *named) {
    if (PyTuple_Size(given) != 1 || (named != NULL && PyDict_Size(named))) {
        PyObject *call = PyObject_CallMethodObjArgs(logs.slow, name_get, self, NULL), *result = call != NULL ? PyObject_Call(call, given, named) : NULL;
        Py_XDECREF(call);
        return result;
    }
    PyObject *record = PyTuple_GetItem(given, 0), *result = PyObject_CallFunctionObjArgs(logs.real, self, record, NULL);
    if (result == NULL) return NULL;
    PyObject *writer = PyObject_GetAttr(logs.recorder, name_quick), *seq = NULL;
    if (writer != NULL && Py_TYPE(writer) == quick_type) seq = quick_logged(writer, record);
    if (seq == Py_None || (seq == NULL && !PyErr_Occurred())) {
        Py_XDECREF(seq);
        seq = PyObject_CallFunctionObjArgs(logs.told, record, NULL);
    }
    if (seq == NULL) Py_CLEAR(result);
    Py_XDECREF(seq);
    Py_XDECREF(writer);
    return result;
}

static PyMethodDef call_handlers_method = {"callHandlers", (PyCFunction)(void (*)(void))call_handlers, METH_VARARGS | METH_KEYWORDS, NULL};

// What the descriptor of a method begins with, the same since 3.3. Its qualified name is made when somebody first asks for it.
typedef struct {
    PyObject_HEAD
    PyObject *class, *name, *qualified;
} Descriptor;

// Give a descriptor that was just made the qualified name of a function; where it does not look as above, it keeps its own.
static void qualify(PyObject *method, PyObject *as) {
    Descriptor *descriptor = (Descriptor *)method;
    PyObject *size = PyObject_GetAttrString((PyObject *)Py_TYPE(method), "__basicsize__"), *class = PyObject_GetAttrString(method, "__objclass__");
    PyObject *name = PyObject_GetAttr(method, name_name), *qualified = PyObject_GetAttrString(as, "__qualname__");
    if (size != NULL && class != NULL && name != NULL && qualified != NULL && PyLong_AsLong(size) >= (long)sizeof(Descriptor) &&
        descriptor->class == class && descriptor->name == name && descriptor->qualified == NULL && Py_TYPE(qualified) == &PyUnicode_Type)
        descriptor->qualified = kept(qualified);
    PyObject *held[] = {size, class, name, qualified};
    for (int i = 0; i < 4; i++) Py_XDECREF(held[i]);
    PyErr_Clear();
}

PyObject *module_logs(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject *class, *parts[4];
    if (!PyArg_ParseTuple(given, "O!OOOO", &PyType_Type, &class, &parts[0], &parts[1], &parts[2], &parts[3])) return NULL;
    if (logs.recorder != NULL) Py_RETURN_FALSE;
    PyObject **places[] = {&logs.recorder, &logs.real, &logs.told, &logs.slow};
    for (int i = 0; i < 4; i++) *places[i] = kept(parts[i]);
    // Of ``object``, since the function in Python takes what is no ``Logger``, too: a class of its own that borrows it.
    PyObject *method = PyDescr_NewMethod(&PyBaseObject_Type, &call_handlers_method);
    if (method != NULL) qualify(method, logs.real);
    int is_put = method != NULL && PyObject_SetAttrString(class, call_handlers_method.ml_name, method) == 0;
    Py_XDECREF(method);
    if (!is_put) return NULL;
    Py_RETURN_TRUE;
}
