// See ring.h.
#include "ring.h"

#include "../crc32.h"
#include "lanes.h"

PyObject *quick_new(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(named)) {
    int fd;
    unsigned long long capacity, epoch, seq;
    Py_ssize_t most;
    PyObject *objects[3];
    if (!PyArg_ParseTuple(given, "iKKKnOOO", &fd, &capacity, &epoch, &seq, &most, &objects[0], &objects[1], &objects[2])) return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Quick *self = (Quick *)alloc(type, 0);
    if (self == NULL) return NULL;
    prepare_lanes();  // each process makes a ring of its own
    void *map = mmap(NULL, HEADER_BYTES + capacity, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        Py_DECREF(self);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    self->map = map;
    self->words = map;
    self->capacity = capacity;
    self->epoch = self->into = epoch;
    self->seq = seq;
    self->most = (size_t)most;
    PyObject **places[] = {&self->scrubber, &self->here, &self->outside};
    for (int i = 0; i < 3; i++) {
        Py_INCREF(objects[i]);
        *places[i] = objects[i];
    }
    return (PyObject *)self;
}

void unmap(Quick *self) {
    if (self->map != NULL) munmap(self->map, HEADER_BYTES + self->capacity);
    self->map = NULL;
}

void quick_gone(PyObject *object) {
    Quick *self = (Quick *)object;
    PyTypeObject *type = Py_TYPE(object);
    unmap(self);
    PyObject *held[] = {self->scrubber, self->here, self->outside, self->checker};
    for (int i = 0; i < 4; i++) Py_XDECREF(held[i]);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

int is_recording(const Quick *self) {
    return is_own_ring(self) && self->words[MODE] == RECORD;
}

static void copy_in(Quick *self, const void *from, size_t size) {
    if (!size) return;  // ``from`` may be NULL then
    uint64_t at = self->head % self->capacity;
    size_t room = (size_t)(self->capacity - at), first = size < room ? size : room;
    memcpy(self->map + HEADER_BYTES + at, from, first);
    if (first < size) memcpy(self->map + HEADER_BYTES, (const char *)from + first, size - first);
    self->head += size;
}

int write_record(Quick *self, unsigned long long seq, char *record, size_t size, const char *data, size_t data_size) {
    size_t meta = size - FRAME, length = meta + data_size;
    if (FRAME + length > self->capacity || length > UINT32_MAX) return 0;
    uint32_t crc = crc32_more(crc32_more(CRC32_BEGIN, (uint8_t *)record + FRAME, meta), (const uint8_t *)data, data_size);
    uint32_t frame[4] = {(uint32_t)length, (uint32_t)meta, ~crc, ~(uint32_t)length};
    memcpy(record, frame, FRAME);
    // A process can be committed at any moment, also in here: what was begun in one file is then written again, into the other one.
    do {
        if (self->words[EPOCH] != self->into) {
            self->into = self->words[EPOCH];
            self->words[HEAD] = self->head = 0;
        }
        copy_in(self, record, size);
        copy_in(self, data, data_size);
        self->words[SEQ] = seq;
        // The agent, on another core, must not see the new head before the record.
        __atomic_store_n(&self->words[HEAD], self->head, __ATOMIC_RELEASE);
    } while (self->words[EPOCH] != self->into);
    return 1;
}

void prepare_ring(void) { crc32_prepare(); }

uint32_t crc32_of(uint32_t before, const void *p, size_t n) { return ~crc32_more(~before, p, n); }

PyObject *module_crc32(PyObject *Py_UNUSED(module), PyObject *given) {
    char *p;
    Py_ssize_t n;
    if (PyBytes_AsStringAndSize(given, &p, &n) < 0) return NULL;
    return PyLong_FromUnsignedLong(crc32_of(0, p, (size_t)n));
}
