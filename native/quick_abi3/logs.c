// Log records. See methods.h, kinds/logs.py.
#include "event.h"
#include "methods.h"
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

// logged(record): an event ``log-record``, where its text was made and it has no exception.
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
