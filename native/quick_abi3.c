// The recorder's quick part: what src/relive_inprocess/relive_recorder does for the events that come most often, in C.
//
// A Python module for the stable ABI of CPython 3.8 and later. It is optional, and it is never the only one who can do something:
// each function here returns None when it meets anything that is not plain (a secret in a text, a type with a form of its own, a long
// text, another mode), and then the Python code does it, whose records are the same to the byte. tests/inprocess/test_quick.py
// holds one against the other.
//
// Whoever calls has the GIL, and keeps it: from the moment at which an event has its number until it is in the ring, no Python
// code can run, so that neither threads nor signal handlers nor the garbage collector's finalizers come in between.
//
// No function of the C library is named with its version (it is linked without one), so the library can be loaded where another one is.
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>  // before Python.h, which asks for mmap64, a name that not every C library has
#include <time.h>
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03080000
#include <Python.h>

// Part of the stable ABI only from 3.10 on, but the same since 3.7.
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif
typedef PyObject *(*Fast)(PyObject *, PyObject *const *, Py_ssize_t);
#define FAST(function) ((PyCFunction)(void (*)(void))(Fast)(function))
// Not part of it at all, but the same since 3.7.1. Weak: where it should be gone one day, the variable's method is called.
extern int PyContextVar_Get(PyObject *, PyObject *, PyObject **) __attribute__((weak));

enum { EPOCH = 2, MODE = 3, HEAD = 5, SEQ = 6 };  // words of the ring's header, see ring.py
enum { RECORD = 1, HEADER_BYTES = 4096, FRAME = 16, DEEPEST = 12, BEGAN = 8 };

static PyObject *name_number, *name_checker, *name_description, *name_rowcount, *name_lastrowid, *name_asyncio, *name_rows, *name_name;

// -- CRC-32 -----------------------------------------------------------------------------------------------------------

static uint32_t crc_table[4][256];

static void make_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
        crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 4; t++) crc_table[t][i] = crc_table[t - 1][i] >> 8 ^ crc_table[0][crc_table[t - 1][i] & 255];
}

static uint32_t crc_by_table(uint32_t c, const uint8_t *p, size_t n) {
    for (; n >= 4; p += 4, n -= 4) {
        uint32_t word;
        memcpy(&word, p, 4);
        c ^= word;
        c = crc_table[3][c & 255] ^ crc_table[2][c >> 8 & 255] ^ crc_table[1][c >> 16 & 255] ^ crc_table[0][c >> 24];
    }
    while (n--) c = crc_table[0][(c ^ *p++) & 255] ^ c >> 8;
    return c;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
static int has_clmul;

static int look_for_clmul(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_PCLMUL) && (c & bit_SSE4_1);
}

// Folding by four, as in "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ" (Intel, 2009), with its constants for this
// polynomial, bits reflected. ``n``: a multiple of 16, at least 64.
__attribute__((target("pclmul,sse4.1"))) static uint32_t crc_by_folding(uint32_t crc, const uint8_t *p, size_t n) {
    const __m128i by_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m128i x[4];
    for (int i = 0; i < 4; i++) x[i] = _mm_loadu_si128((const __m128i *)p + i);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)crc));
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64)
        for (int i = 0; i < 4; i++) {
            __m128i low = _mm_clmulepi64_si128(x[i], by_four, 0x00), high = _mm_clmulepi64_si128(x[i], by_four, 0x11);
            x[i] = _mm_xor_si128(_mm_xor_si128(low, high), _mm_loadu_si128((const __m128i *)p + i));
        }
    __m128i y = x[0];
    for (int i = 1; i < 4; i++) {
        __m128i low = _mm_clmulepi64_si128(y, by_one, 0x00), high = _mm_clmulepi64_si128(y, by_one, 0x11);
        y = _mm_xor_si128(_mm_xor_si128(low, high), x[i]);
    }
    for (; n >= 16; p += 16, n -= 16) {
        __m128i low = _mm_clmulepi64_si128(y, by_one, 0x00), high = _mm_clmulepi64_si128(y, by_one, 0x11);
        y = _mm_xor_si128(_mm_xor_si128(low, high), _mm_loadu_si128((const __m128i *)p));
    }
    const __m128i words = _mm_setr_epi32(~0, 0, ~0, 0);
    y = _mm_xor_si128(_mm_srli_si128(y, 8), _mm_clmulepi64_si128(y, by_one, 0x10));
    __m128i z = _mm_srli_si128(y, 4);
    y = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(y, words), _mm_set_epi64x(0, 0x0163cd6124), 0x00), z);
    const __m128i last = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    z = _mm_clmulepi64_si128(_mm_and_si128(y, words), last, 0x10);
    z = _mm_clmulepi64_si128(_mm_and_si128(z, words), last, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(y, z), 1);
}
#endif

static uint32_t crc_more(uint32_t crc, const uint8_t *p, size_t n) {
#if defined(__x86_64__)
    if (n >= 64 && has_clmul) {
        size_t even = n & ~(size_t)15;
        crc = crc_by_folding(crc, p, even);
        p += even;
        n -= even;
    }
#endif
    return crc_by_table(crc, p, n);
}

// -- a text that grows ------------------------------------------------------------------------------------------------

typedef struct {
    char *at;
    size_t length, room;
    int failed;  // what was to be written is not plain, or there is no memory
    char own[1496];
} Text;

static void text_begin(Text *text) {
    text->at = text->own;
    text->length = 0;
    text->room = sizeof text->own;
    text->failed = 0;
}

static void text_end(Text *text) {
    if (text->at != text->own) PyMem_Free(text->at);
}

static char *more(Text *text, size_t size) {
    if (text->failed) return NULL;
    if (text->room - text->length < size) {
        size_t room = 2 * (text->length + size);
        char *at = text->at == text->own ? PyMem_Malloc(room) : PyMem_Realloc(text->at, room);
        if (at == NULL) {
            text->failed = 1;
            return NULL;
        }
        if (text->at == text->own) memcpy(at, text->own, text->length);
        text->at = at;
        text->room = room;
    }
    return text->at + text->length;
}

static void put(Text *text, const char *from, size_t size) {
    char *to = more(text, size);
    if (to == NULL) return;
    memcpy(to, from, size);
    text->length += size;
}
#define PUT(text, literal) put(text, literal, sizeof(literal) - 1)

static void put_unsigned(Text *text, unsigned long long value) {
    char digits[20], *at = digits + 20;
    do *--at = (char)('0' + value % 10);
    while (value /= 10);
    put(text, at, (size_t)(digits + 20 - at));
}

static void put_signed(Text *text, long long value) {
    if (value < 0) PUT(text, "-");
    put_unsigned(text, value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value);
}

static void put_unit(Text *text, unsigned unit) {
    static const char digits[] = "0123456789abcdef";
    char said[6] = {'\\', 'u', digits[unit >> 12 & 15], digits[unit >> 8 & 15], digits[unit >> 4 & 15], digits[unit & 15]};
    put(text, said, 6);
}

// One character beyond ASCII; returns its length in bytes, 0 where this is no UTF-8 (RFC 3629).
static size_t character(const uint8_t *p, size_t left, unsigned *code) {
    size_t size = *p >= 0xF0 ? 4 : *p >= 0xE0 ? 3 : 2;
    if (*p < 0xC2 || *p > 0xF4 || left < size) return 0;
    unsigned value = *p & (0xFFu >> (size + 1));
    for (size_t i = 1; i < size; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        value = value << 6 | (p[i] & 0x3Fu);
    }
    if (value < (size == 2 ? 0x80u : size == 3 ? 0x800u : 0x10000u) || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return 0;
    *code = value;
    return size;
}

// A string as Python's json writes it: everything beyond printable ASCII escaped.
static void put_quoted(Text *text, const uint8_t *p, size_t n) {
    PUT(text, "\"");
    size_t i = 0, from = 0;
    while (i < n) {
        uint8_t c = p[i];
        if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
            i++;
            continue;
        }
        put(text, (const char *)p + from, i - from);
        size_t size = 1;
        unsigned code = c;
        if (c >= 0x80 && !(size = character(p + i, n - i, &code))) text->failed = 1;
        if (text->failed) return;
        const char *escape = c == '"' ? "\\\"" : c == '\\' ? "\\\\" : c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t"
                             : c == '\f' ? "\\f" : c == '\b' ? "\\b" : NULL;
        if (escape != NULL) {
            put(text, escape, 2);
        } else if (code < 0x10000) {
            put_unit(text, code);
        } else {
            put_unit(text, 0xD800 + ((code - 0x10000) >> 10));
            put_unit(text, 0xDC00 + ((code - 0x10000) & 0x3FF));
        }
        from = i += size;
    }
    put(text, (const char *)p + from, n - from);
    PUT(text, "\"");
}

// -- whether there may be a secret in a text --------------------------------------------------------------------------

enum { FORM_CHAINS = 1024 };
enum { CARD = 1, FIELD = 2, SCHEME = 4, FORM = 8, FOLDED = 16, HINT = 32 };

typedef struct {
    const char *at;
    size_t length;
} Piece;

typedef struct {
    PyObject_HEAD
    int sure;           // 0: no text is ever said to be clean
    PyObject *held;     // tuple of bytes: what the pieces below point to
    Piece *pieces;      // hints, then forms
    Py_ssize_t hints, forms;
    uint8_t flags[256];
    uint8_t pairs[8192];  // a bit for each two bytes with which a form begins
    int32_t first[FORM_CHAINS];  // the first form of each chain, from 1; forms are many, and each is near a few places of a text only
    int32_t *next;               // the form behind each in its chain; 0: none
} Checker;

static unsigned chain_of(unsigned pair) { return pair * 40503u >> 4 & (FORM_CHAINS - 1); }

static PyObject *checker_type;

static int same_but_case(const uint8_t *p, const char *low, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((p[i] >= 'A' && p[i] <= 'Z' ? p[i] + 32 : p[i]) != (uint8_t)low[i]) return 0;
    return 1;
}

static int has_hint(const Checker *self, const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!(self->flags[p[i]] & HINT)) continue;
        for (Py_ssize_t k = 0; k < self->hints; k++)
            if (self->pieces[k].length <= n - i && same_but_case(p + i, self->pieces[k].at, self->pieces[k].length)) return 1;
    }
    return 0;
}

static int may_be_card(const uint8_t *p, size_t n) {
    int digits = 0;
    for (size_t i = 1; i < n && digits < 12; i++) {
        if ((p[i] == ' ' || p[i] == '-') && i + 1 < n) i++;
        if (p[i] < '0' || p[i] > '9') break;
        digits++;
    }
    return digits >= 12;
}

// No: certainly none that ``Scrubber.text`` would find, so that it would return the text as it is.
static int may_hold_secret(const Checker *self, const uint8_t *p, size_t n) {
    int fields = 0;
    if (!self->sure) return 1;
    for (size_t i = 0; i < n; i++) {
        uint8_t flags = self->flags[p[i]] & ~HINT;
        if (!flags) continue;
        size_t left = n - i;
        if (flags & FIELD) {
            fields = 1;
            if (left > 2 && p[i] == ':' && p[i + 1] == '/' && p[i + 2] == '/') return 1;
        }
        if (flags & CARD && left >= 13 && may_be_card(p + i, left)) return 1;
        if (flags & SCHEME && ((left >= 5 && same_but_case(p + i, "basic", 5)) || (left >= 6 && same_but_case(p + i, "bearer", 6))))
            return 1;
        // Two characters that become ASCII letters when they are made small: the sign of Kelvin, and I with a dot.
        if (flags & FOLDED && ((p[i] == 0xE2 && left > 2 && p[i + 1] == 0x84 && p[i + 2] == 0xAA) || (p[i] == 0xC4 && left > 1 && p[i + 1] == 0xB0)))
            return 1;
        if (flags & FORM && left > 1) {
            unsigned pair = p[i] | (unsigned)p[i + 1] << 8;
            if (!(self->pairs[pair >> 3] & 1 << (pair & 7))) continue;
            for (int32_t k = self->first[chain_of(pair)]; k; k = self->next[k - 1]) {
                const Piece *form = &self->pieces[self->hints + k - 1];
                if (form->length <= left && !memcmp(form->at, p + i, form->length)) return 1;
            }
        }
    }
    return fields && has_hint(self, p, n);
}

static int is_ascii(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] >= 0x80) return 0;
    return 1;
}

static int is_utf8(const uint8_t *p, size_t n) {
    unsigned code;
    for (size_t i = 0; i < n;) {
        size_t size = p[i] < 0x80 ? 1 : character(p + i, n - i, &code);
        if (!size) return 0;
        i += size;
    }
    return 1;
}

static int add_pieces(Checker *self, PyObject *texts, Py_ssize_t from, Py_ssize_t at, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *bytes = PyUnicode_AsUTF8String(PyTuple_GetItem(texts, i));
        char *p;
        Py_ssize_t n;
        if (bytes == NULL || PyBytes_AsStringAndSize(bytes, &p, &n) < 0) {
            Py_XDECREF(bytes);
            if (!PyErr_ExceptionMatches(PyExc_UnicodeError)) return -1;
            PyErr_Clear();  // half a surrogate pair
            self->sure = 0;
            bytes = PyBytes_FromStringAndSize("??", 2);
            if (bytes == NULL || PyBytes_AsStringAndSize(bytes, &p, &n) < 0) return -1;
        }
        if (PyTuple_SetItem(self->held, from + i, bytes) < 0) return -1;
        self->pieces[at + i].at = p;
        self->pieces[at + i].length = (size_t)n;
        if (n < 2) self->sure = 0;
    }
    return 0;
}

// Checker(hints, forms, sure): the parts of names that are secret, in small letters; the ways in which known secrets are written
// (tuples of str).
static PyObject *checker_new(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(named)) {
    PyObject *hints, *forms;
    int sure;
    if (!PyArg_ParseTuple(given, "O!O!p", &PyTuple_Type, &hints, &PyTuple_Type, &forms, &sure)) return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Checker *self = (Checker *)alloc(type, 0);
    if (self == NULL) return NULL;
    self->sure = sure;
    self->hints = PyTuple_Size(hints);
    self->forms = PyTuple_Size(forms);
    self->held = PyTuple_New(self->hints + self->forms);
    self->pieces = PyMem_Malloc(sizeof(Piece) * (size_t)(self->hints + self->forms + 1));
    self->next = PyMem_Calloc((size_t)self->forms + 1, sizeof(int32_t));
    if (self->held == NULL || self->pieces == NULL || self->next == NULL || add_pieces(self, hints, 0, 0, self->hints) < 0 ||
        add_pieces(self, forms, self->hints, self->hints, self->forms) < 0) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    for (int c = '2'; c <= '6'; c++) self->flags[c] |= CARD;
    self->flags[':'] |= FIELD;
    self->flags['='] |= FIELD;
    self->flags['b'] |= SCHEME;
    self->flags['B'] |= SCHEME;
    self->flags[0xE2] |= FOLDED;
    self->flags[0xC4] |= FOLDED;
    if (!self->sure) return (PyObject *)self;
    for (Py_ssize_t k = 0; k < self->hints + self->forms; k++) {
        const uint8_t *p = (const uint8_t *)self->pieces[k].at;
        if (k < self->hints) {
            if (!is_ascii(p, self->pieces[k].length)) self->sure = 0;
            self->flags[*p] |= HINT;
            if (*p >= 'a' && *p <= 'z') self->flags[*p - 32] |= HINT;
        } else {
            unsigned pair = p[0] | (unsigned)p[1] << 8;
            self->flags[*p] |= FORM;
            self->pairs[pair >> 3] |= (uint8_t)(1 << (pair & 7));
            Py_ssize_t form = k - self->hints;
            self->next[form] = self->first[chain_of(pair)];
            self->first[chain_of(pair)] = (int32_t)form + 1;
        }
    }
    return (PyObject *)self;
}

static void checker_gone(PyObject *object) {
    Checker *self = (Checker *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->held);
    PyMem_Free(self->pieces);
    PyMem_Free(self->next);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

// clean(text) -> bool: no secret is in it. False: it has to be looked for.
static PyObject *checker_clean(PyObject *self, PyObject *given) {
    int clean = 0;
    char *p;
    Py_ssize_t n;
    PyObject *bytes = Py_TYPE(given) == &PyUnicode_Type ? PyUnicode_AsUTF8String(given) : NULL;
    if (bytes != NULL && !PyBytes_AsStringAndSize(bytes, &p, &n)) clean = !may_hold_secret((Checker *)self, (uint8_t *)p, (size_t)n);
    PyErr_Clear();
    Py_XDECREF(bytes);
    return PyBool_FromLong(clean);
}

static PyMethodDef checker_methods[] = {{"clean", checker_clean, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot checker_slots[] = {{Py_tp_new, checker_new}, {Py_tp_dealloc, checker_gone}, {Py_tp_methods, checker_methods}, {0, NULL}};
static PyType_Spec checker_spec = {"relive_recorder._quick.Checker", sizeof(Checker), 0, Py_TPFLAGS_DEFAULT, checker_slots};

// -- values as JSON ---------------------------------------------------------------------------------------------------

static void put_text(Text *text, PyObject *value, const Checker *checker) {
    char *p;
    Py_ssize_t n;
    PyObject *bytes = PyUnicode_AsUTF8String(value);  // the other way would leave a copy in the service's own string
    if (bytes == NULL || PyBytes_AsStringAndSize(bytes, &p, &n) < 0 ||
        (checker != NULL && may_hold_secret(checker, (uint8_t *)p, (size_t)n)))
        text->failed = 1;
    else
        put_quoted(text, (uint8_t *)p, (size_t)n);
    Py_XDECREF(bytes);
}

// None, booleans, integers of 64 bits, finite floats; returns 0 for any other type.
static int put_number(Text *text, PyObject *value) {
    if (value == Py_None) {
        PUT(text, "null");
    } else if (value == Py_True) {
        PUT(text, "true");
    } else if (value == Py_False) {
        PUT(text, "false");
    } else if (Py_TYPE(value) == &PyLong_Type) {
        int over = 0;
        long long number = PyLong_AsLongLongAndOverflow(value, &over);
        if (over || number == INT64_MIN) text->failed = 1;
        else put_signed(text, number);
    } else if (Py_TYPE(value) == &PyFloat_Type) {
        double number = PyFloat_AsDouble(value);
        char *said = number - number == 0 ? PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL) : NULL;
        if (said == NULL) text->failed = 1;
        else put(text, said, strlen(said));
        PyMem_Free(said);
    } else {
        return 0;
    }
    return 1;
}

// As ``encode`` of recorder.py.
static void put_json(Text *text, PyObject *value, int depth) {
    if (text->failed || put_number(text, value)) return;
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyUnicode_Type) {
        put_text(text, value, NULL);
    } else if (depth > 4 * DEEPEST) {
        text->failed = 1;
    } else if (type == &PyList_Type || type == &PyTuple_Type) {
        Py_ssize_t count = type == &PyList_Type ? PyList_Size(value) : PyTuple_Size(value);
        PUT(text, "[");
        for (Py_ssize_t i = 0; i < count && !text->failed; i++) {
            if (i) PUT(text, ",");
            put_json(text, type == &PyList_Type ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i), depth + 1);
        }
        PUT(text, "]");
    } else if (type == &PyDict_Type) {
        Py_ssize_t at = 0;
        PyObject *key, *item;
        int first = 1;
        PUT(text, "{");
        // A failure makes an exception, so the garbage collector may have run, and any code with it: nothing is looked at after one.
        while (!text->failed && PyDict_Next(value, &at, &key, &item)) {
            if (Py_TYPE(key) != &PyUnicode_Type) {
                text->failed = 1;
                return;
            }
            if (!first) PUT(text, ",");
            first = 0;
            put_text(text, key, NULL);
            PUT(text, ":");
            put_json(text, item, depth + 1);
        }
        PUT(text, "}");
    } else {
        text->failed = 1;
    }
}

static void put_packed(Text *text, PyObject *value, const Checker *checker, int depth);

static void put_items(Text *text, PyObject *values, const Checker *checker, int depth) {
    int is_list = Py_TYPE(values) == &PyList_Type;
    Py_ssize_t count = is_list ? PyList_Size(values) : PyTuple_Size(values);
    PUT(text, "[");
    for (Py_ssize_t i = 0; i < count && !text->failed; i++) {
        if (i) PUT(text, ",");
        put_packed(text, is_list ? PyList_GetItem(values, i) : PyTuple_GetItem(values, i), checker, depth);
    }
    PUT(text, "]");
}

// As ``pack`` of values.py, where every text in it is clean and it holds nothing but plain values, bytes that are UTF-8, and lists.
static void put_packed(Text *text, PyObject *value, const Checker *checker, int depth) {
    if (text->failed || put_number(text, value)) return;
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyUnicode_Type) {
        put_text(text, value, checker);
    } else if (type == &PyBytes_Type) {
        char *p;
        Py_ssize_t n;
        if (PyBytes_AsStringAndSize(value, &p, &n) < 0 || may_hold_secret(checker, (uint8_t *)p, (size_t)n)) {
            text->failed = 1;
            return;
        }
        PUT(text, "{\"$\":[\"utf8\",");
        put_quoted(text, (uint8_t *)p, (size_t)n);
        PUT(text, "]}");
    } else if (type == &PyList_Type && depth > 0) {
        put_items(text, value, checker, depth - 1);
    } else {
        text->failed = 1;
    }
}

// -- the ring ---------------------------------------------------------------------------------------------------------

typedef struct {
    PyObject_HEAD
    uint8_t *map;  // NULL: forgotten
    volatile uint64_t *words;
    uint64_t capacity, epoch, into, head;
    unsigned long long seq;
    size_t most;  // [bytes] of one value's JSON; beyond that the Python code decides what is kept
    PyObject *scrubber, *request, *lane, *here, *outside;
    PyObject *loop, *task;  // asyncio's functions, once it is there
} Quick;

// Quick(fd, capacity, epoch, seq, most, scrubber, request, lane, here, outside): the writer of a ring that was just made; ``seq``: of the
// last event before. The rest is context.py's: two variables, a function that finds out the lane, the request that is none.
static PyObject *quick_new(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(named)) {
    int fd;
    unsigned long long capacity, epoch, seq;
    Py_ssize_t most;
    PyObject *objects[5];
    if (!PyArg_ParseTuple(given, "iKKKnOOOOO", &fd, &capacity, &epoch, &seq, &most, &objects[0], &objects[1], &objects[2], &objects[3],
                          &objects[4]))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Quick *self = (Quick *)alloc(type, 0);
    if (self == NULL) return NULL;
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
    PyObject **places[] = {&self->scrubber, &self->request, &self->lane, &self->here, &self->outside};
    for (int i = 0; i < 5; i++) {
        Py_INCREF(objects[i]);
        *places[i] = objects[i];
    }
    return (PyObject *)self;
}

static void unmap(Quick *self) {
    if (self->map != NULL) munmap(self->map, HEADER_BYTES + self->capacity);
    self->map = NULL;
}

static void quick_gone(PyObject *object) {
    Quick *self = (Quick *)object;
    PyTypeObject *type = Py_TYPE(object);
    unmap(self);
    PyObject *held[] = {self->scrubber, self->request, self->lane, self->here, self->outside, self->loop, self->task};
    for (int i = 0; i < 7; i++) Py_XDECREF(held[i]);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static int is_recording(const Quick *self) {
    return self->map != NULL && self->words[EPOCH] == self->epoch && self->words[MODE] == RECORD;
}

static void copy_in(Quick *self, const void *from, size_t size) {
    uint64_t at = self->head % self->capacity;
    size_t room = (size_t)(self->capacity - at), first = size < room ? size : room;
    memcpy(self->map + HEADER_BYTES + at, from, first);
    if (first < size) memcpy(self->map + HEADER_BYTES, (const char *)from + first, size - first);
    self->head += size;
}

// ``record``: FRAME bytes, which are filled in here, and the meta behind them. As ``Ring.write``.
static int write_record(Quick *self, unsigned long long seq, char *record, size_t size, const char *data, size_t data_size) {
    size_t meta = size - FRAME, length = meta + data_size;
    if (FRAME + length > self->capacity || length > UINT32_MAX) return 0;
    uint32_t crc = crc_more(crc_more(0xFFFFFFFFu, (uint8_t *)record + FRAME, meta), (const uint8_t *)data, data_size);
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

// -- who it is --------------------------------------------------------------------------------------------------------

static PyObject *get(PyObject *variable) {
    PyObject *value = NULL;
    if (PyContextVar_Get != NULL) return PyContextVar_Get(variable, NULL, &value) < 0 ? NULL : value;
    return PyObject_CallMethod(variable, "get", NULL);
}

// As ``who`` in context.py.
static int who_runs(Quick *self, unsigned long long *who) {
    *who = PyThread_get_thread_ident();
    if (self->loop == NULL) {
        PyObject *asyncio = PyDict_GetItem(PyImport_GetModuleDict(), name_asyncio);
        if (asyncio == NULL || !PyObject_HasAttrString(asyncio, "current_task")) return 0;
        self->task = PyObject_GetAttrString(asyncio, "current_task");
        self->loop = PyObject_GetAttrString(asyncio, "_get_running_loop");
        if (self->task == NULL || self->loop == NULL) return -1;
    }
    PyObject *loop = PyObject_CallFunctionObjArgs(self->loop, NULL);
    if (loop == NULL) return -1;
    if (loop != Py_None) {
        PyObject *task = PyObject_CallFunctionObjArgs(self->task, loop, NULL);
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

// As ``place`` of context.py. Python code may run in it.
static int find_place(Quick *self, unsigned long long *number, unsigned long long *lane) {
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
        if (who_runs(self, &who) < 0) goto end;
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

static unsigned long long now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return (unsigned long long)at.tv_sec * 1000000000u + (unsigned long long)at.tv_nsec;
}

// An event is begun and ended without any Python code in between. ``request``: NULL or None for that of the context.
static int begin_event(Quick *self, Text *text, const char *kind, size_t kind_size, PyObject *request) {
    unsigned long long number = 0, lane = 0;
    text_begin(text);
    if (find_place(self, &number, &lane) < 0) return -1;
    if (request != NULL && request != Py_None) {
        number = PyLong_AsUnsignedLongLong(request);
        if (PyErr_Occurred()) return -1;
    }
    if (self->map == NULL || self->words[EPOCH] != self->epoch) return -1;  // the place may have taken a while to find
    text->length = FRAME;
    PUT(text, "[");
    put_unsigned(text, self->seq + 1);
    PUT(text, ",");
    put_unsigned(text, now(CLOCK_MONOTONIC));
    PUT(text, ",");
    put_unsigned(text, now(CLOCK_REALTIME));
    PUT(text, ",\"");
    put(text, kind, kind_size);
    PUT(text, "\",");
    put_unsigned(text, PyThread_get_thread_ident());
    PUT(text, ",");
    put_unsigned(text, lane);
    PUT(text, ",");
    put_unsigned(text, number);
    PUT(text, ",");
    return 0;
}
#define BEGIN(self, text, kind, request) begin_event(self, text, kind, sizeof(kind) - 1, request)

// Its number; None where it could not be written here, and then it has no number yet.
static PyObject *end_event(Quick *self, Text *text, const char *data, size_t data_size) {
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

static PyObject *not_plain(Text *text) {
    if (text != NULL) text_end(text);
    PyErr_Clear();
    Py_RETURN_NONE;
}

// Python code may run in it.
static PyObject *checker_of(Quick *self) {
    PyObject *checker = PyObject_GetAttr(self->scrubber, name_checker);
    if (checker == Py_None) {  // something was learned since it was made
        Py_DECREF(checker);
        checker = PyObject_CallMethod(self->scrubber, "make_checker", NULL);
    }
    if (checker != NULL && (PyObject *)Py_TYPE(checker) == checker_type) return checker;
    Py_XDECREF(checker);
    PyErr_Clear();
    return NULL;
}

// -- events -----------------------------------------------------------------------------------------------------------

// The bytes of a str that is ASCII, or of bytes; -1 otherwise. ``held`` is to be let go.
static int bytes_of(PyObject *value, PyObject **held, char **p, Py_ssize_t *n) {
    *held = NULL;
    if (Py_TYPE(value) == &PyUnicode_Type) {
        *held = PyUnicode_AsUTF8String(value);
        if (*held == NULL) return -1;
    } else if (Py_TYPE(value) == &PyBytes_Type) {
        Py_INCREF(value);
        *held = value;
    } else {
        return -1;
    }
    return PyBytes_AsStringAndSize(*held, p, n);
}

// emit(kind, fields, data, request): as ``Recorder.emit``, where fields may be a text of JSON (ASCII) already.
static PyObject *quick_emit(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    char *kind, *data, *fields;
    Py_ssize_t kind_size, data_size, fields_size;
    PyObject *kind_held = NULL, *fields_held = NULL, *result = NULL;
    if (count != 4 || self->map == NULL || self->words[EPOCH] != self->epoch) Py_RETURN_NONE;
    if (bytes_of(given[0], &kind_held, &kind, &kind_size) == 0 && PyBytes_AsStringAndSize(given[2], &data, &data_size) == 0 &&
        begin_event(self, &text, kind, (size_t)kind_size, given[3]) == 0) {
        if (Py_TYPE(given[1]) == &PyUnicode_Type) {
            if (bytes_of(given[1], &fields_held, &fields, &fields_size) == 0) put(&text, fields, (size_t)fields_size);
            else text.failed = 1;
        } else {
            put_json(&text, given[1], 0);
        }
        result = end_event(self, &text, data, (size_t)data_size);
    }
    Py_XDECREF(kind_held);
    Py_XDECREF(fields_held);
    return result != NULL ? result : not_plain(NULL);
}

// Whether one of some words is, or holds, a name that may tell a secret: of a command with such a key its values are looked at.
static int has_telling_word(const Checker *checker, PyObject *words) {
    int is_list = Py_TYPE(words) == &PyList_Type;
    Py_ssize_t count = is_list ? PyList_Size(words) : PyTuple_Size(words);
    for (Py_ssize_t i = 1; i < count; i++) {
        PyObject *held;
        char *p;
        Py_ssize_t n;
        int found = 0;
        if (bytes_of(is_list ? PyList_GetItem(words, i) : PyTuple_GetItem(words, i), &held, &p, &n) == 0)
            found = has_hint(checker, (uint8_t *)p, (size_t)n);
        else PyErr_Clear();
        Py_XDECREF(held);
        if (found) return 1;
    }
    return 0;
}

// asked(begin, name, values) -> bytes: the time (8 bytes) and a JSON text: ``begin``; unless ``values`` is None, ``name`` and the values (a
// tuple or list) packed; a closing brace. None where not all is plain, or nothing is recorded. Without a ``name`` the values are words of
// a command.
static PyObject *quick_asked(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    unsigned long long began = now(CLOCK_MONOTONIC);
    if (count != 3 || !is_recording(self)) Py_RETURN_NONE;
    text_begin(&text);
    put(&text, (char *)&began, BEGAN);
    for (int i = 0; i < (given[2] == Py_None ? 1 : 2); i++) {
        PyObject *held;
        char *p;
        Py_ssize_t n;
        if (bytes_of(given[i], &held, &p, &n) < 0) text.failed = 1;
        else put(&text, p, (size_t)n);
        Py_XDECREF(held);
    }
    if (given[2] != Py_None) {
        PyObject *checker = checker_of(self);
        size_t before = text.length;
        if (checker == NULL || (Py_TYPE(given[2]) != &PyTuple_Type && Py_TYPE(given[2]) != &PyList_Type)) text.failed = 1;
        else put_items(&text, given[2], (Checker *)checker, DEEPEST);
        if (!text.failed && !PyObject_IsTrue(given[1]) && has_telling_word((Checker *)checker, given[2])) text.failed = 1;
        Py_XDECREF(checker);
        if (text.length - before > self->most) text.failed = 1;
    }
    PUT(&text, "}");
    PyObject *result = text.failed ? NULL : PyBytes_FromStringAndSize(text.at, (Py_ssize_t)text.length);
    if (result == NULL) return not_plain(&text);
    text_end(&text);
    return result;
}

static int put_asked(Text *text, PyObject *asked, unsigned long long *began) {
    char *p;
    Py_ssize_t n;
    if (PyBytes_AsStringAndSize(asked, &p, &n) < 0 || n < BEGAN) return -1;
    memcpy(began, p, BEGAN);
    PUT(text, "{\"asked\":");
    put(text, p + BEGAN, (size_t)n - BEGAN);
    return 0;
}

// answered(kind, asked, value): a call that has ended, see calls.py. ``asked``: as ``asked`` gave it.
static PyObject *quick_answered(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    char *kind;
    Py_ssize_t kind_size;
    PyObject *held = NULL, *result = NULL;
    unsigned long long began, ended = now(CLOCK_MONOTONIC);
    if (count != 3 || !is_recording(self)) Py_RETURN_NONE;
    PyObject *checker = checker_of(self);
    if (checker != NULL && bytes_of(given[0], &held, &kind, &kind_size) == 0 &&
        begin_event(self, &text, kind, (size_t)kind_size, NULL) == 0) {
        if (put_asked(&text, given[1], &began) < 0) text.failed = 1;
        PUT(&text, ",\"answer\":");
        size_t before = text.length;
        put_packed(&text, given[2], (Checker *)checker, DEEPEST);
        if (text.length - before > self->most) text.failed = 1;
        PUT(&text, ",\"ns\":");
        put_unsigned(&text, ended - began);
        PUT(&text, "}");
        result = end_event(self, &text, NULL, 0);
    }
    Py_XDECREF(held);
    Py_XDECREF(checker);
    return result != NULL ? result : not_plain(NULL);
}

static void put_header(Text *text, PyObject *part, const Checker *checker, int is_name);

static void put_columns(Text *text, PyObject *description, const Checker *checker) {
    PUT(text, ",\"columns\":[");
    if (Py_TYPE(description) != &PyTuple_Type) text->failed = 1;
    for (Py_ssize_t i = 0; !text->failed && i < PyTuple_Size(description); i++) {
        PyObject *column = PyTuple_GetItem(description, i);
        if (i) PUT(text, ",");
        if (Py_TYPE(column) != &PyTuple_Type || PyTuple_Size(column) < 1 || Py_TYPE(PyTuple_GetItem(column, 0)) != &PyUnicode_Type)
            text->failed = 1;
        else put_header(text, PyTuple_GetItem(column, 0), checker, 1);
    }
    PUT(text, "]");
}

// executed(asked, cursor): a statement that SQLite has executed, see kinds/sqlite.py; a cursor that gives rows gets the number.
static PyObject *quick_executed(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    PyObject *result = NULL;
    unsigned long long began, ended = now(CLOCK_MONOTONIC);
    if (count != 2 || !is_recording(self)) Py_RETURN_NONE;
    PyObject *rowcount = PyObject_GetAttr(given[1], name_rowcount), *columns = PyObject_GetAttr(given[1], name_description);
    PyObject *last = columns == Py_None ? PyObject_GetAttr(given[1], name_lastrowid) : NULL;
    PyObject *checker = checker_of(self);
    if (checker != NULL && rowcount != NULL && columns != NULL && (columns != Py_None || last != NULL) && BEGIN(self, &text, "query", NULL) == 0) {
        if (put_asked(&text, given[0], &began) < 0) text.failed = 1;
        PUT(&text, ",\"answer\":{\"rowcount\":");
        if (!put_number(&text, rowcount)) text.failed = 1;
        if (columns != Py_None) {
            put_columns(&text, columns, (Checker *)checker);
        } else if (last != Py_None) {
            PUT(&text, ",\"lastrowid\":");
            if (!put_number(&text, last)) text.failed = 1;
        }
        PUT(&text, "},\"ns\":");
        put_unsigned(&text, ended - began);
        PUT(&text, "}");
        result = end_event(self, &text, NULL, 0);
        if (result != Py_None && columns != Py_None && PyObject_SetAttr(given[1], name_rows, result) < 0) PyErr_Clear();
    }
    Py_XDECREF(checker);
    Py_XDECREF(rowcount);
    Py_XDECREF(columns);
    Py_XDECREF(last);
    return result != NULL ? result : not_plain(NULL);
}

// rows(query, rows): an event ``rows`` of kinds/query.py; ``rows``: a list of tuples.
static PyObject *quick_rows(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    PyObject *result = NULL;
    if (count != 2 || Py_TYPE(given[1]) != &PyList_Type || self->map == NULL || self->words[EPOCH] != self->epoch) Py_RETURN_NONE;
    PyObject *checker = checker_of(self);
    if (checker != NULL && BEGIN(self, &text, "rows", NULL) == 0) {
        PUT(&text, "{\"query\":");
        if (!put_number(&text, given[0])) text.failed = 1;
        PUT(&text, ",\"rows\":[");
        size_t before = text.length;
        for (Py_ssize_t i = 0; !text.failed && i < PyList_Size(given[1]); i++) {
            PyObject *row = PyList_GetItem(given[1], i);
            if (i) PUT(&text, ",");
            if (Py_TYPE(row) != &PyTuple_Type || text.length - before > self->most) text.failed = 1;
            else put_items(&text, row, (Checker *)checker, DEEPEST);
        }
        if (text.length - before > self->most) text.failed = 1;
        PUT(&text, "]}");
        result = end_event(self, &text, NULL, 0);
    }
    Py_XDECREF(checker);
    return result != NULL ? result : not_plain(NULL);
}

static PyObject *item(PyObject *pair, Py_ssize_t at) {
    return Py_TYPE(pair) == &PyTuple_Type ? PyTuple_GetItem(pair, at) : PyList_GetItem(pair, at);
}

static Py_ssize_t items(PyObject *of) {
    return Py_TYPE(of) == &PyTuple_Type ? PyTuple_Size(of) : Py_TYPE(of) == &PyList_Type ? PyList_Size(of) : -1;
}

// A name or value of a header: bytes, of which each is a character, or str.
static void put_header(Text *text, PyObject *part, const Checker *checker, int is_name) {
    char *p;
    Py_ssize_t n;
    PyObject *held;
    if (bytes_of(part, &held, &p, &n) < 0 || !is_ascii((uint8_t *)p, (size_t)n) ||
        (is_name ? !checker->sure || has_hint(checker, (uint8_t *)p, (size_t)n) : may_hold_secret(checker, (uint8_t *)p, (size_t)n)))
        text->failed = 1;
    else
        put_quoted(text, (uint8_t *)p, (size_t)n);
    Py_XDECREF(held);
}

// A tuple or list of pairs.
static void put_headers(Text *text, PyObject *headers, const Checker *checker) {
    Py_ssize_t count = items(headers);
    if (count < 0) text->failed = 1;
    PUT(text, "[");
    for (Py_ssize_t i = 0; !text->failed && i < count; i++) {
        PyObject *pair = item(headers, i);
        if (items(pair) != 2) {
            text->failed = 1;
            return;
        }
        put(text, i ? ",[" : "[", i ? 2 : 1);
        put_header(text, item(pair, 0), checker, 1);
        PUT(text, ",");
        put_header(text, item(pair, 1), checker, 0);
        PUT(text, "]");
    }
    PUT(text, "]");
}

// started(server, method, target, peer, headers, request): an event ``handling-started``.
static PyObject *quick_started(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    PyObject *result = NULL;
    if (count != 6 || !is_recording(self)) Py_RETURN_NONE;
    for (int i = 0; i < 3; i++)
        if (Py_TYPE(given[i]) != &PyUnicode_Type) Py_RETURN_NONE;
    PyObject *checker = checker_of(self);
    if (checker != NULL && BEGIN(self, &text, "handling-started", given[5]) == 0) {
        PUT(&text, "{\"server\":");
        put_text(&text, given[0], NULL);
        PUT(&text, ",\"method\":");
        put_text(&text, given[1], NULL);
        PUT(&text, ",\"target\":");
        put_text(&text, given[2], (Checker *)checker);
        PUT(&text, ",\"peer\":");
        put_json(&text, given[3], 0);
        PUT(&text, ",\"headers\":");
        put_headers(&text, given[4], (Checker *)checker);
        PUT(&text, "}");
        result = end_event(self, &text, NULL, 0);
    }
    Py_XDECREF(checker);
    return result != NULL ? result : not_plain(NULL);
}

// ended(began, status, headers, body, request): an event ``handling-ended``; began: monotonic time.
static PyObject *quick_ended(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    Text text;
    char *body;
    Py_ssize_t size;
    PyObject *result = NULL;
    unsigned long long ended = now(CLOCK_MONOTONIC);
    if (count != 5 || !is_recording(self) || Py_TYPE(given[3]) != &PyBytes_Type) Py_RETURN_NONE;
    unsigned long long began = PyLong_AsUnsignedLongLong(given[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(given[3], &body, &size) < 0) return not_plain(NULL);
    PyObject *checker = checker_of(self);
    if (checker != NULL && (size_t)size <= 4 * self->most && is_utf8((uint8_t *)body, (size_t)size) &&
        !may_hold_secret((Checker *)checker, (uint8_t *)body, (size_t)size) && BEGIN(self, &text, "handling-ended", given[4]) == 0) {
        PUT(&text, "{\"ns\":");
        put_unsigned(&text, ended - began);
        PUT(&text, ",\"status\":");
        if (Py_TYPE(given[1]) != &PyLong_Type || !put_number(&text, given[1])) text.failed = 1;
        if (size) {
            PUT(&text, ",\"bytes\":");
            put_unsigned(&text, (unsigned long long)size);
        }
        PUT(&text, ",\"headers\":");
        put_headers(&text, given[2], (Checker *)checker);
        PUT(&text, "}");
        result = end_event(self, &text, body, (size_t)size);
    }
    Py_XDECREF(checker);
    return result != NULL ? result : not_plain(NULL);
}

// put(seq, meta, data) -> bool: as ``Ring.write``.
static PyObject *quick_put(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    char *meta, *data;
    Py_ssize_t meta_size, data_size;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "put takes three arguments");
    unsigned long long seq = PyLong_AsUnsignedLongLong(given[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(given[1], &meta, &meta_size) < 0 ||
        PyBytes_AsStringAndSize(given[2], &data, &data_size) < 0)
        return NULL;
    Text text;
    text_begin(&text);
    text.length = FRAME;
    put(&text, meta, (size_t)meta_size);
    if (text.failed) return PyErr_NoMemory();
    int done = self->map != NULL && write_record(self, seq, text.at, text.length, data, (size_t)data_size);
    text_end(&text);
    return PyBool_FromLong(done);
}

// next() -> int: a number for an event.
static PyObject *quick_next(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    return PyLong_FromUnsignedLongLong(++((Quick *)object)->seq);
}

// last() -> int: of the last event.
static PyObject *quick_last(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    return PyLong_FromUnsignedLongLong(((Quick *)object)->seq);
}

// adopt(): know the file of a branch as one's own.
static PyObject *quick_adopt(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    Quick *self = (Quick *)object;
    if (self->map != NULL) self->epoch = self->words[EPOCH];
    Py_RETURN_NONE;
}

// forget(): let go of the ring; nothing is written any more.
static PyObject *quick_forget(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    unmap((Quick *)object);
    Py_RETURN_NONE;
}

static PyMethodDef quick_methods[] = {
    {"adopt", quick_adopt, METH_NOARGS, NULL},       {"answered", FAST(quick_answered), METH_FASTCALL, NULL},
    {"asked", FAST(quick_asked), METH_FASTCALL, NULL}, {"emit", FAST(quick_emit), METH_FASTCALL, NULL},
    {"ended", FAST(quick_ended), METH_FASTCALL, NULL}, {"executed", FAST(quick_executed), METH_FASTCALL, NULL},
    {"forget", quick_forget, METH_NOARGS, NULL},     {"last", quick_last, METH_NOARGS, NULL},
    {"next", quick_next, METH_NOARGS, NULL},         {"put", FAST(quick_put), METH_FASTCALL, NULL},
    {"rows", FAST(quick_rows), METH_FASTCALL, NULL}, {"started", FAST(quick_started), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};
static PyType_Slot quick_slots[] = {{Py_tp_new, quick_new}, {Py_tp_dealloc, quick_gone}, {Py_tp_methods, quick_methods}, {0, NULL}};
static PyType_Spec quick_spec = {"relive_recorder._quick.Quick", sizeof(Quick), 0, Py_TPFLAGS_DEFAULT, quick_slots};

// -- clocks -----------------------------------------------------------------------------------------------------------

// Functions of ``time`` as they are called most: by Python's machinery, a dozen times in a request, which is nobody's business (see
// kinds/clock.py). They are built-in functions as those whose places they take.
enum { CLOCKS = 6 };
static struct {
    PyObject *real, *told;  // the function that was there before; the one in Python that records what it says
} clocks[CLOCKS];
static PyObject *verdicts;  // of kinds/callers.py: which modules are machinery, by name

static PyObject *read_clock(int at) {
    PyObject *globals = PyEval_GetGlobals(), *name = globals != NULL ? PyDict_GetItem(globals, name_name) : NULL;
    int is_machinery = name != NULL && Py_TYPE(name) == &PyUnicode_Type && PyDict_GetItem(verdicts, name) == Py_True;
    return PyObject_CallObject(is_machinery ? clocks[at].real : clocks[at].told, NULL);
}
#define CLOCK(at) \
    static PyObject *clock_##at(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) { return read_clock(at); }
CLOCK(0)
CLOCK(1)
CLOCK(2)
CLOCK(3)
CLOCK(4)
CLOCK(5)
static PyMethodDef clock_methods[CLOCKS] = {
    {"time", clock_0, METH_NOARGS, NULL},         {"time_ns", clock_1, METH_NOARGS, NULL},
    {"monotonic", clock_2, METH_NOARGS, NULL},    {"monotonic_ns", clock_3, METH_NOARGS, NULL},
    {"perf_counter", clock_4, METH_NOARGS, NULL}, {"perf_counter_ns", clock_5, METH_NOARGS, NULL}};

// clock(name, real, told, verdicts, module, doc) -> a built-in function ``module.name``; once for each name.
static PyObject *module_clock(PyObject *Py_UNUSED(module), PyObject *given) {
    const char *name, *doc;
    PyObject *real, *told, *known, *time, *module_name, *result = NULL;
    if (!PyArg_ParseTuple(given, "sOOO!Os", &name, &real, &told, &PyDict_Type, &known, &time, &doc)) return NULL;
    for (int at = 0; at < CLOCKS && result == NULL; at++) {
        if (strcmp(clock_methods[at].ml_name, name) || clocks[at].real != NULL) continue;
        // Kept for good, as the function is.
        char *text = PyMem_Malloc(strlen(name) + strlen(doc) + 8);
        if (text == NULL) return PyErr_NoMemory();
        memcpy(text, name, strlen(name));
        memcpy(text + strlen(name), "()\n--\n\n", 7);
        memcpy(text + strlen(name) + 7, doc, strlen(doc) + 1);
        clock_methods[at].ml_doc = text;
        Py_INCREF(real);
        Py_INCREF(told);
        Py_INCREF(known);
        clocks[at].real = real;
        clocks[at].told = told;
        verdicts = known;
        if ((module_name = PyObject_GetAttrString(time, "__name__")) == NULL) return NULL;
        result = PyCFunction_NewEx(&clock_methods[at], time, module_name);
        Py_DECREF(module_name);
        if (result == NULL) return NULL;
    }
    return result != NULL ? result : PyErr_Format(PyExc_ValueError, "no such clock: %s", name);
}

// -- the module -------------------------------------------------------------------------------------------------------

// crc32(bytes) -> int: for the tests.
static PyObject *module_crc32(PyObject *Py_UNUSED(module), PyObject *given) {
    char *p;
    Py_ssize_t n;
    if (PyBytes_AsStringAndSize(given, &p, &n) < 0) return NULL;
    return PyLong_FromUnsignedLong(~crc_more(0xFFFFFFFFu, (uint8_t *)p, (size_t)n));
}

static PyMethodDef module_methods[] = {
    {"clock", module_clock, METH_VARARGS, NULL}, {"crc32", module_crc32, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_quick", NULL, -1, module_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__quick(void) {
    if (checker_type != NULL) return PyErr_Format(PyExc_ImportError, "only for one interpreter of a process");
    make_crc_table();
#if defined(__x86_64__)
    has_clmul = look_for_clmul();
#endif
    name_number = PyUnicode_InternFromString("number");
    name_checker = PyUnicode_InternFromString("checker");
    name_description = PyUnicode_InternFromString("description");
    name_rowcount = PyUnicode_InternFromString("rowcount");
    name_lastrowid = PyUnicode_InternFromString("lastrowid");
    name_asyncio = PyUnicode_InternFromString("asyncio");
    name_name = PyUnicode_InternFromString("__name__");
    name_rows = PyUnicode_InternFromString("_relive_rows");
    PyObject *module = PyModule_Create(&definition), *quick = PyType_FromSpec(&quick_spec);
    checker_type = PyType_FromSpec(&checker_spec);
    if (module == NULL || quick == NULL || checker_type == NULL || PyErr_Occurred()) return NULL;
    Py_INCREF(checker_type);
    if (PyModule_AddObject(module, "Quick", quick) < 0 || PyModule_AddObject(module, "Checker", checker_type) < 0) return NULL;
    return module;
}
