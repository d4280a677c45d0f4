// The writer of a ring, see ring.py, and with it what an event is made of.
#pragma once
#include "python.h"

enum { EPOCH = 2, MODE = 3, HEAD = 5, SEQ = 6 };  // words of the ring's header, see ring.py
enum { RECORD = 1, REPLAY = 2, HEADER_BYTES = 4096, FRAME = 16 };

typedef struct {
    PyObject_HEAD
    uint8_t *map;  // NULL: forgotten
    volatile uint64_t *words;
    uint64_t capacity, epoch, into, head;
    unsigned long long seq;
    size_t most;  // [bytes] of one value's JSON; beyond that the Python code decides what is kept
    PyObject *scrubber, *here, *outside;
    PyObject *checker;  // the scrubber's, as it was when it was last asked for; NULL: not yet
} Quick;

// Once, before anything else.
void prepare_ring(void);

// A method of the type: Quick(fd, capacity, epoch, seq, most, scrubber, here, outside), the writer of a ring that was just made; ``seq``: of
// the last event before. The rest is context.py's: a function that finds out the lane, the request that is none.
PyObject *quick_new(PyTypeObject *type, PyObject *given, PyObject *named);
void quick_gone(PyObject *object);

// ``record``: FRAME bytes, which are filled in here, and the meta behind them. As ``Ring.write``.
int write_record(Quick *self, unsigned long long seq, char *record, size_t size, const char *data, size_t data_size);

int is_recording(const Quick *self);

// It is the ring of this process, recording or not.
static inline int is_own_ring(const Quick *self) { return self->map != NULL && self->words[EPOCH] == self->epoch; }

// Let go of the memory.
void unmap(Quick *self);

// Of bytes that come in pieces: ``before`` is 0 at first, and then what was returned for those before.
uint32_t crc32_of(uint32_t before, const void *p, size_t n);

// crc32(bytes) -> int: as that of zlib.
PyObject *module_crc32(PyObject *module, PyObject *given);
