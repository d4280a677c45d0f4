// See event.h.
#include "event.h"

#include "fields.h"
#include "lanes.h"
#include "quick.h"

unsigned long long now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return (unsigned long long)at.tv_sec * 1000000000u + (unsigned long long)at.tv_nsec;
}

// Who made the last event, as it stands in one: most are made by the same lane as the one before. Written from its end.
static struct {
    unsigned long long thread, lane, request;
    size_t size;  // 0: there was none
    char said[3 * 21 + 1];
} last;

static char *who_before(char *end, unsigned long long lane, unsigned long long request) {
    unsigned long long thread = PyThread_get_thread_ident();
    char *said = last.said + sizeof last.said;
    if (!last.size || last.thread != thread || last.lane != lane || last.request != request) {
        unsigned long long parts[] = {request, lane, thread};
        char *at = said;
        *--at = ',';
        for (int i = 0; i < 3; i++) {
            at = digits_before(at, parts[i]);
            *--at = ',';
        }
        last.thread = thread;
        last.lane = lane;
        last.request = request;
        last.size = (size_t)(said - at);
    }
    return memcpy(end - last.size, said - last.size, last.size);
}

enum { LONGEST_KIND = 100, BEGINNING = LONGEST_KIND + 7 * 21 };  // [bytes]
int begin_event(Quick *self, Text *text, const char *kind, size_t kind_size, PyObject *request) {
    unsigned long long number = 0, lane = 0;
    text_begin(text);
    if (kind_size > LONGEST_KIND) return -1;
    if (find_place(self, &number, &lane) < 0) return -1;
    if (request != NULL && request != Py_None) {
        number = PyLong_AsUnsignedLongLong(request);
        if (PyErr_Occurred()) return -1;
    }
    if (self->map == NULL || self->words[EPOCH] != self->epoch) return -1;  // the place may have taken a while to find
    // Made from its end: seven numbers and a word of at most ``LONGEST_KIND``, so that it fits.
    char said[BEGINNING], *end = said + sizeof said, *at = who_before(end, lane, number);
    *--at = '"';
    memcpy(at -= kind_size, kind, kind_size);
    *--at = '"';
    *--at = ',';
    unsigned long long began = now(CLOCK_MONOTONIC);
    at = digits_before(at, now(CLOCK_REALTIME));
    *--at = ',';
    at = digits_before(at, began);
    *--at = ',';
    at = digits_before(at, self->seq + 1);
    *--at = '[';
    text->length = FRAME;
    put(text, at, (size_t)(end - at));
    return 0;
}

PyObject *end_event(Quick *self, Text *text, const char *data, size_t data_size) {
    PyObject *result = NULL;
    PUT(text, "]");
    if (!text->failed) {
        self->seq++;
        write_record(self, self->seq, text->at, text->length, data, data_size);
        result = PyLong_FromUnsignedLongLong(self->seq);
    }
    text_end(text);
    if (result != NULL) return result;
    PyErr_Clear();
    Py_RETURN_NONE;
}

int is_to_be_passed_on(void) { return PyErr_Occurred() != NULL && !PyErr_ExceptionMatches(PyExc_Exception); }

PyObject *not_plain(Text *text) {
    if (text != NULL) text_end(text);
    if (is_to_be_passed_on()) return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}

Quick *writer_of(PyObject *recorder) {
    static Field field;
    if (recorder != NULL && field.name == NULL && find_field(&field, (PyObject *)Py_TYPE(recorder), name_quick) < 0) PyErr_Clear();
    PyObject *quick = recorder != NULL ? get_field(&field, recorder) : NULL;
    if (quick != NULL && Py_TYPE(quick) == quick_type && is_recording((Quick *)quick)) return (Quick *)quick;
    Py_XDECREF(quick);
    PyErr_Clear();
    return NULL;
}

PyObject *checker_of(Quick *self) {
    if (self->checker != NULL && !is_outdated((Checker *)self->checker)) return kept(self->checker);
    PyObject *checker = PyObject_GetAttr(self->scrubber, name_checker);
    int is_one = checker != NULL && (PyObject *)Py_TYPE(checker) == checker_type;
    if (checker == Py_None || (is_one && is_outdated((Checker *)checker))) {  // something was learned since it was made
        Py_DECREF(checker);
        checker = PyObject_CallMethod(self->scrubber, "make_checker", NULL);
    }
    if (checker != NULL && (PyObject *)Py_TYPE(checker) == checker_type) {
        PyObject *before = self->checker;
        self->checker = kept(checker);
        Py_XDECREF(before);
        return checker;
    }
    Py_XDECREF(checker);
    return NULL;
}
