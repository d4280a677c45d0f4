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
#include "crc32.h"

// Part of the stable ABI only from 3.10 on, but the same since 3.7.
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif
typedef PyObject *(*Fast)(PyObject *, PyObject *const *, Py_ssize_t);
#define FAST(function) ((PyCFunction)(void (*)(void))(Fast)(function))
// Not part of it at all, but the same since 3.7.1. Weak: where it should be gone one day, the variable's method is called.
extern int PyContextVar_Get(PyObject *, PyObject *, PyObject **) __attribute__((weak));
extern PyObject *PyContextVar_Set(PyObject *, PyObject *) __attribute__((weak));

enum { EPOCH = 2, MODE = 3, HEAD = 5, SEQ = 6 };  // words of the ring's header, see ring.py
enum { RECORD = 1, HEADER_BYTES = 4096, FRAME = 16, DEEPEST = 12, BEGAN = 8 };

static PyObject *name_number, *name_checker, *name_description, *name_rowcount, *name_lastrowid, *name_asyncio, *name_rows, *name_name, *name_quick,
    *name_globals, *name_file, *name_request, *name_who, *name_birth, *name_lanes, *name_connection, *name_texts, *name_database, *name_asked, *name_sqlite,
    *name_parameters;

// All that is kept here belongs to one interpreter of the process: objects of another may be gone at any time.
extern void *PyInterpreterState_Get(void) __attribute__((weak));   // from 3.9 on
extern void *_PyInterpreterState_Get(void) __attribute__((weak));  // its name in 3.8
extern void *PyInterpreterState_Main(void) __attribute__((weak));  // not of the stable ABI, but the same since 3.7
static void *own_interpreter;

static void *running_interpreter(void) {
    return PyInterpreterState_Get != NULL ? PyInterpreterState_Get() : _PyInterpreterState_Get != NULL ? _PyInterpreterState_Get() : NULL;
}

static int is_own_interpreter(void) { return own_interpreter != NULL && running_interpreter() == own_interpreter; }

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

// Writes a number's digits so that they end before ``end``; returns where they begin. At most 20.
static char *digits_before(char *end, unsigned long long value) {
    static const char pairs[] =
        "000102030405060708091011121314151617181920212223242526272829303132333435363738394041424344454647484950515253545556575859"
        "60616263646566676869707172737475767778798081828384858687888990919293949596979899";
    for (; value >= 100; value /= 100) memcpy(end -= 2, pairs + 2 * (value % 100), 2);
    if (value < 10) *--end = (char)('0' + value);
    else memcpy(end -= 2, pairs + 2 * value, 2);
    return end;
}

static void put_unsigned(Text *text, unsigned long long value) {
    char digits[20], *at = digits_before(digits + 20, value);
    put(text, at, (size_t)(digits + 20 - at));
}

static void put_signed(Text *text, long long value) {
    if (value < 0) PUT(text, "-");
    put_unsigned(text, value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value);
}

static unsigned __int128 powers_of_ten[22];

static void make_powers_of_ten(void) {
    powers_of_ten[0] = 1;
    for (int i = 1; i < 22; i++) powers_of_ten[i] = powers_of_ten[i - 1] * 10;
}

// The shortest decimal that reads back as ``value``, and of these the nearest, as Python's ``repr`` has it; a twentieth of its work, where
// 128 bits are enough. Returns 0, with nothing written, for what is left to Python: very small and large numbers, exponents, ties.
//
// value = mantissa / 2^down. Of d digits behind the point the nearest decimal is q / 10^d, with q = mantissa * 10^d / 2^down rounded;
// it reads back as the value where it is nearer than half the distance to the next double: 2 * |q * 2^down - mantissa * 10^d| < 10^d.
// What holds for d digits holds for d + 1, so the least d is found from above, where 10^d > 2^down.
static int put_short_float(Text *text, double value) {
    uint64_t bits, mantissa;
    memcpy(&bits, &value, sizeof bits);
    double size = value < 0 ? -value : value;
    if (!(size >= 1e-4 && size < 9007199254740992.0)) return 0;
    int down = 1075 - (int)(bits >> 52 & 0x7FF), digits = 0;
    mantissa = (bits & 0xFFFFFFFFFFFFFu) | 1ull << 52;
    uint64_t whole = down < 64 ? mantissa >> down : 0, fraction = 0;
    if (size != (double)whole) {
        if (mantissa == 1ull << 52) return 0;  // the next double below is nearer than the one above
        for (int d = down * 1233 / 4096 + 1; d > 0; d--) {
            unsigned __int128 exact = mantissa * powers_of_ten[d], half = (unsigned __int128)1 << (down - 1);
            unsigned __int128 q = (exact + half) >> down, back = q << down;
            unsigned __int128 off = back > exact ? back - exact : exact - back;
            if (off == half || 2 * off == powers_of_ten[d]) return 0;
            if (2 * off > powers_of_ten[d]) break;
            digits = d;
            fraction = (uint64_t)q - whole * (uint64_t)powers_of_ten[d];
        }
        if (!digits) return 0;
    }
    char said[24], *at = said + sizeof said;
    for (int i = 0; i < digits; i++, fraction /= 10) *--at = (char)('0' + fraction % 10);
    if (!digits) *--at = '0';
    *--at = '.';
    if (value < 0) PUT(text, "-");
    put_unsigned(text, whole);
    put(text, at, (size_t)(said + sizeof said - at));
    return 1;
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

enum { FORM_CHAINS = 1024, NAMES = 64, LONGEST_NAME = 31 };
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
    struct {
        uint8_t length;
        char at[LONGEST_NAME];
    } names[NAMES];  // of headers and columns, which come again and again: those in which no hint was found
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

// Whether a name tells no secret, as ``has_hint``.
static int is_harmless_name(Checker *self, const uint8_t *p, size_t n) {
    if (!self->sure) return 0;
    if (n == 0 || n > LONGEST_NAME) return !has_hint(self, p, n);
    size_t place = (p[0] * 31u + p[n - 1] * 7u + n) % NAMES;
    if (self->names[place].length == n && !memcmp(self->names[place].at, p, n)) return 1;
    if (has_hint(self, p, n)) return 0;
    self->names[place].length = (uint8_t)n;
    memcpy(self->names[place].at, p, n);
    return 1;
}

static int is_digit(uint8_t c) { return c >= '0' && c <= '9'; }
static int is_letter(uint8_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Whether so many digits are as many as cards have, see ``_CARD_DIGITS`` of scrub.py.
static int has_length_of_card(uint8_t first, int count) {
    return count == 16 || (first == '3' && (count == 14 || count == 15)) || (first == '4' && (count == 13 || count == 19)) ||
           (first == '6' && count >= 16);
}

// What begins at ``p[at]`` may be a card: looked at as ``Scrubber._card`` does it, for each length at which the digits may end.
static int may_be_card(const uint8_t *p, size_t at, size_t n) {
    uint8_t before = at ? p[at - 1] : 0;
    if (is_digit(before) || is_letter(before) || (before == '.' && at > 1 && is_digit(p[at - 2]))) return 0;
    int count = 0, sums[2] = {0, 0};  // the second with the last digit doubled
    for (size_t i = at; i < n && count < 19; i++) {
        if (count && (p[i] == ' ' || p[i] == '-') && i + 1 < n) i++;
        if (!is_digit(p[i])) break;
        int digit = p[i] - '0', doubled = digit > 4 ? 2 * digit - 9 : 2 * digit, plain = sums[0];
        sums[0] = sums[1] + digit;
        sums[1] = plain + doubled;
        count++;
        if (sums[0] % 10 == 0 && count >= 13 && has_length_of_card(p[at], count) && (i + 1 == n || !is_digit(p[i + 1]))) return 1;
    }
    return 0;
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
        if (flags & CARD && left >= 13 && may_be_card(p, i, n)) return 1;
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
        if (put_short_float(text, number)) return 1;
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
    PyObject *held[] = {self->scrubber, self->request, self->lane, self->here, self->outside};
    for (int i = 0; i < 5; i++) Py_XDECREF(held[i]);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static int is_recording(const Quick *self) {
    return self->map != NULL && self->words[EPOCH] == self->epoch && self->words[MODE] == RECORD;
}

static void copy_in(Quick *self, const void *from, size_t size) {
    if (!size) return;  // ``from`` may be NULL then
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

// -- who it is --------------------------------------------------------------------------------------------------------

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
        if (asyncio == NULL || !PyObject_HasAttrString(asyncio, "current_task")) return 0;
        if (current_task == NULL && (current_task = PyObject_GetAttrString(asyncio, "current_task")) == NULL) return -1;
        if ((running_loop = PyObject_GetAttrString(asyncio, "_get_running_loop")) == NULL) return -1;
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

// here() -> the lane of the running code, as ``_here`` of context.py.
static PyObject *module_here(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
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

// bear() -> a birth, as ``bear`` of context.py.
static PyObject *module_bear(PyObject *module, PyObject *Py_UNUSED(nothing)) {
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

// lanes(request, lane, born, of_thread, birth, count) -> bool: what ``here`` and ``bear`` go by: three variables, what is known of each
// thread, the class ``Birth``, ``itertools.count``. False: this Python lets nobody set a variable from here.
static PyObject *module_lanes(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject *parts[6];
    if (!PyArg_ParseTuple(given, "OOOOOO", &parts[0], &parts[1], &parts[2], &parts[3], &parts[4], &parts[5])) return NULL;
    PyObject **places[] = {&lanes.request, &lanes.lane, &lanes.born, &lanes.of_thread, &lanes.birth, &lanes.count};
    for (int i = 0; i < 6; i++) {
        Py_INCREF(parts[i]);
        *places[i] = parts[i];
    }
    return PyBool_FromLong(PyContextVar_Set != NULL);
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

static unsigned long long now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return (unsigned long long)at.tv_sec * 1000000000u + (unsigned long long)at.tv_nsec;
}

enum { LONGEST_KIND = 100, BEGINNING = LONGEST_KIND + 7 * 21 };  // [bytes]

// An event is begun and ended without any Python code in between. ``request``: NULL or None for that of the context.
static int begin_event(Quick *self, Text *text, const char *kind, size_t kind_size, PyObject *request) {
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
    char said[BEGINNING], *end = said + sizeof said, *at = end;
    *--at = ',';
    at = digits_before(at, number);
    *--at = ',';
    at = digits_before(at, lane);
    *--at = ',';
    at = digits_before(at, PyThread_get_thread_ident());
    *--at = ',';
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

// sqlite(cursor, given) -> as ``asked``, of what is given to a cursor's ``execute`` (a tuple); None where the statement is new.
static PyObject *quick_sqlite(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Quick *self = (Quick *)object;
    PyObject *result = NULL, *begin = NULL, *key = NULL, *values = Py_None;
    Py_ssize_t number = count == 2 && Py_TYPE(given[1]) == &PyTuple_Type ? PyTuple_Size(given[1]) : 0;
    if (number < 1 || number > 2 || Py_TYPE(PyTuple_GetItem(given[1], 0)) != &PyUnicode_Type) Py_RETURN_NONE;
    if (number == 2 && (values = PyTuple_GetItem(given[1], 1)) != Py_None) {
        if (Py_TYPE(values) != &PyTuple_Type && Py_TYPE(values) != &PyList_Type) Py_RETURN_NONE;
        if (!PyObject_Size(values)) values = Py_None;
    }
    PyObject *connection = PyObject_GetAttr(given[0], name_connection), *texts = PyObject_GetAttr(self->scrubber, name_texts);
    PyObject *database = connection != NULL ? PyObject_GetAttr(connection, name_database) : NULL;
    if (database != NULL && texts != NULL && Py_TYPE(texts) == &PyDict_Type)
        key = PyTuple_Pack(4, name_asked, name_sqlite, database, PyTuple_GetItem(given[1], 0));
    if (key != NULL && (begin = PyDict_GetItem(texts, key)) != NULL) {
        PyObject *asked[] = {begin, name_parameters, values};
        Py_INCREF(begin);
        result = quick_asked(object, asked, 3);
        Py_DECREF(begin);
    }
    Py_XDECREF(key);
    Py_XDECREF(database);
    Py_XDECREF(connection);
    Py_XDECREF(texts);
    return result != NULL ? result : not_plain(NULL);
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

static void put_header(Text *text, PyObject *part, Checker *checker, int is_name);

static void put_columns(Text *text, PyObject *description, Checker *checker) {
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
static void put_header(Text *text, PyObject *part, Checker *checker, int is_name) {
    char *p;
    Py_ssize_t n;
    PyObject *held;
    if (bytes_of(part, &held, &p, &n) < 0 || !is_ascii((uint8_t *)p, (size_t)n) ||
        (is_name ? !is_harmless_name(checker, (uint8_t *)p, (size_t)n) : may_hold_secret(checker, (uint8_t *)p, (size_t)n)))
        text->failed = 1;
    else
        put_quoted(text, (uint8_t *)p, (size_t)n);
    Py_XDECREF(held);
}

// A tuple or list of pairs.
static void put_headers(Text *text, PyObject *headers, Checker *checker) {
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
    {"rows", FAST(quick_rows), METH_FASTCALL, NULL}, {"sqlite", FAST(quick_sqlite), METH_FASTCALL, NULL},
    {"started", FAST(quick_started), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};
static PyType_Slot quick_slots[] = {{Py_tp_new, quick_new}, {Py_tp_dealloc, quick_gone}, {Py_tp_methods, quick_methods}, {0, NULL}};
static PyType_Spec quick_spec = {"relive_recorder._quick.Quick", sizeof(Quick), 0, Py_TPFLAGS_DEFAULT, quick_slots};

// -- readings ---------------------------------------------------------------------------------------------------------

// Clocks and draws. By whom one is made is known by the module of the innermost Python function, see kinds/callers.py: what Python's
// machinery reads for itself, a dozen clocks in a request, is nobody's business. Where that is not known yet, or this is not the
// original, the Python code does it all.
typedef struct {
    PyObject *real, *told;     // the function that was there before; the one in Python that records what it says
    PyObject *tell;            // of Python, records a value that was read already
    PyObject *recorder;        // has the writer, while there is one
    PyObject *verdicts;        // which modules are machinery, by name
    PyObject *begin;           // bytes: an event's fields up to the value
    const char *kind;
    int are_others_served;     // modules without a verdict are no machinery
} Source;

enum { LONGEST_DRAW = 4096 };  // [bytes] of randomness that is kept

static PyTypeObject *quick_type;

static PyObject *verdict_on_caller(const Source *source) {
    PyObject *globals = PyEval_GetGlobals(), *name = globals != NULL ? PyDict_GetItem(globals, name_name) : NULL;
    if (globals == NULL) return Py_True;  // a thread or a callback of C: no Python code asks
    PyObject *verdict = name != NULL && Py_TYPE(name) == &PyUnicode_Type ? PyDict_GetItem(source->verdicts, name) : NULL;
    return verdict == NULL && name != NULL && source->are_others_served ? Py_False : verdict;
}

// A reference to the writer; NULL where nothing is written by it just now.
static Quick *writer_of(PyObject *recorder) {
    PyObject *quick = PyObject_GetAttr(recorder, name_quick);
    if (quick != NULL && Py_TYPE(quick) == quick_type && is_recording((Quick *)quick)) return (Quick *)quick;
    Py_XDECREF(quick);
    PyErr_Clear();
    return NULL;
}

static void put_base64(Text *text, const uint8_t *p, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = (uint32_t)p[i] << 16 | (uint32_t)(i + 1 < n ? p[i + 1] : 0) << 8 | (i + 2 < n ? p[i + 2] : 0);
        char said[4] = {digits[bits >> 18], digits[bits >> 12 & 63], i + 1 < n ? digits[bits >> 6 & 63] : '=', i + 2 < n ? digits[bits & 63] : '='};
        put(text, said, 4);
    }
}

// Whether the event of a reading was written; or nothing has to be, as so much randomness is not kept.
static int tell_reading(Quick *self, const Source *source, PyObject *value) {
    Text text;
    char *p;
    Py_ssize_t n;
    int is_bytes = Py_TYPE(value) == &PyBytes_Type;
    if (is_bytes && PyBytes_Size(value) > LONGEST_DRAW) return 1;
    if (begin_event(self, &text, source->kind, strlen(source->kind), NULL) < 0 || PyBytes_AsStringAndSize(source->begin, &p, &n) < 0) {
        text_end(&text);
        PyErr_Clear();
        return 0;
    }
    put(&text, p, (size_t)n);
    if (is_bytes && PyBytes_AsStringAndSize(value, &p, &n) == 0) {
        PUT(&text, "{\"$\":[\"bytes\",\"");
        put_base64(&text, (uint8_t *)p, (size_t)n);
        PUT(&text, "\"]}");
    } else if (!put_number(&text, value)) {
        text.failed = 1;
    }
    PUT(&text, "}");
    PyObject *seq = end_event(self, &text, NULL, 0);
    int is_told = seq != Py_None;
    Py_XDECREF(seq);
    return is_told;
}

static PyObject *read_source(const Source *source, PyObject *given, PyObject *named) {
    PyObject *verdict = verdict_on_caller(source);
    if (verdict == Py_True) return PyObject_Call(source->real, given, named);
    Quick *writer = verdict == Py_False ? writer_of(source->recorder) : NULL;
    if (writer == NULL) return PyObject_Call(source->told, given, named);
    PyObject *value = PyObject_Call(source->real, given, named);
    if (value != NULL && !tell_reading(writer, source, value)) {
        PyObject *done = PyObject_CallFunctionObjArgs(source->tell, value, NULL);
        if (done == NULL) {
            Py_DECREF(value);
            value = NULL;
        }
        Py_XDECREF(done);
    }
    Py_DECREF(writer);
    return value;
}

// (begin, real, told, tell, recorder, verdicts): what a source is made of, which keeps them.
static int fill_source(Source *source, PyObject *parts, const char *kind) {
    PyObject *begin, *real, *told, *tell, *recorder, *known;
    if (!PyArg_ParseTuple(parts, "O!OOOOO!", &PyBytes_Type, &begin, &real, &told, &tell, &recorder, &PyDict_Type, &known)) return -1;
    PyObject *held[] = {begin, real, told, tell, recorder, known};
    for (int i = 0; i < 6; i++) Py_INCREF(held[i]);
    *source = (Source){.real = real, .told = told, .tell = tell, .recorder = recorder, .verdicts = known, .begin = begin, .kind = kind};
    return 0;
}

// Functions of ``time`` as they are called most. They are built-in functions as those whose places they take.
enum { CLOCKS = 6 };
static Source clocks[CLOCKS];
static PyObject *nothing_given;

#define CLOCK(at) \
    static PyObject *clock_##at(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) { return read_source(&clocks[at], nothing_given, NULL); }
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

// clock(name, module, doc, parts) -> a built-in function ``module.name``; once for each name. ``parts``: see ``fill_source``.
static PyObject *module_clock(PyObject *Py_UNUSED(module), PyObject *given) {
    const char *name, *doc;
    PyObject *time, *parts, *module_name, *result = NULL;
    if (!PyArg_ParseTuple(given, "sOsO!", &name, &time, &doc, &PyTuple_Type, &parts)) return NULL;
    for (int at = 0; at < CLOCKS && result == NULL; at++) {
        if (strcmp(clock_methods[at].ml_name, name) || clocks[at].real != NULL) continue;
        // Kept for good, as the function is.
        char *text = PyMem_Malloc(strlen(name) + strlen(doc) + 8);
        if (text == NULL) return PyErr_NoMemory();
        memcpy(text, name, strlen(name));
        memcpy(text + strlen(name), "()\n--\n\n", 7);
        memcpy(text + strlen(name) + 7, doc, strlen(doc) + 1);
        clock_methods[at].ml_doc = text;
        if (fill_source(&clocks[at], parts, "clock") < 0 || (module_name = PyObject_GetAttrString(time, "__name__")) == NULL) return NULL;
        result = PyCFunction_NewEx(&clock_methods[at], time, module_name);
        Py_DECREF(module_name);
        if (result == NULL) return NULL;
    }
    return result != NULL ? result : PyErr_Format(PyExc_ValueError, "no such clock: %s", name);
}

typedef struct {
    PyObject_HEAD
    Source source;
} Draw;

// Draw(parts, are_others_served): a callable in the place of a function that draws; never let go. ``parts``: see ``fill_source``.
static PyObject *draw_new(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(named)) {
    PyObject *parts;
    int are_others_served;
    if (!PyArg_ParseTuple(given, "O!p", &PyTuple_Type, &parts, &are_others_served)) return NULL;
    Draw *self = (Draw *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(self);
    if (fill_source(&self->source, parts, "random") < 0) return NULL;
    self->source.are_others_served = are_others_served;
    return (PyObject *)self;
}

static PyObject *draw_call(PyObject *self, PyObject *given, PyObject *named) { return read_source(&((Draw *)self)->source, given, named); }

static PyType_Slot draw_slots[] = {{Py_tp_new, draw_new}, {Py_tp_call, draw_call}, {0, NULL}};
static PyType_Spec draw_spec = {"relive_recorder._quick.Draw", sizeof(Draw), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, draw_slots};

// -- reads of the environment -----------------------------------------------------------------------------------------

#pragma weak PyFrame_GetCode  // from 3.9 on
extern PyFrameObject *PyFrame_GetBack(PyFrameObject *) __attribute__((weak));  // not part of the stable ABI, but the same since 3.9

// What a method ``__getitem__`` of os.environ's class goes by, see kinds/environment.py.
static struct {
    PyObject *real, *told;             // the method that was there before; the function in Python that records what it gives
    PyObject *environ, *items, *values;  // codes of iterators that go through all of it
    PyObject *passing, *installed;     // see kinds/callers.py: modules that are passed on the way up; verdicts by a code's file
} environment;

// The code of a frame, and the frame above it; new references.
static PyObject *code_of(PyFrameObject *frame) {
    return PyFrame_GetCode != NULL ? (PyObject *)PyFrame_GetCode(frame) : PyObject_GetAttrString((PyObject *)frame, "f_code");
}

static PyFrameObject *frame_above(PyFrameObject *frame) {
    if (PyFrame_GetBack != NULL) return PyFrame_GetBack(frame);
    PyObject *above = PyObject_GetAttrString((PyObject *)frame, "f_back");
    if (above != Py_None) return (PyFrameObject *)above;
    Py_DECREF(above);
    return NULL;
}

static int is_passing(PyFrameObject *frame) {
    PyObject *globals = PyObject_GetAttr((PyObject *)frame, name_globals), *name = NULL;
    if (globals != NULL && PyDict_Check(globals)) name = PyDict_GetItem(globals, name_name);
    int found = name != NULL && Py_TYPE(name) == &PyUnicode_Type && PySet_Contains(environment.passing, name) == 1;
    Py_XDECREF(globals);
    return found;
}

// Nothing is recorded of this read, as is known without asking the Python code.
static int is_read_by_library(void) {
    PyFrameObject *frame = PyEval_GetFrame(), *above;
    if (frame == NULL) return 1;  // no Python code asks
    Py_INCREF(frame);
    PyObject *code = code_of(frame);
    int found = code != NULL && (code == environment.items || code == environment.values);
    if (!found && code != NULL) {
        while (frame != NULL && is_passing(frame)) {
            above = frame_above(frame);
            Py_DECREF(frame);
            frame = above;
        }
        Py_DECREF(code);
        code = frame != NULL ? code_of(frame) : NULL;
        PyObject *file = code != NULL ? PyObject_GetAttr(code, name_file) : NULL;
        found = file != NULL && PyDict_GetItem(environment.installed, file) == Py_True;
        Py_XDECREF(file);
    }
    Py_XDECREF(code);
    Py_XDECREF(frame);
    PyErr_Clear();
    return found;
}

static PyObject *environment_item(PyObject *self, PyObject *key) {
    int is_nothing = self != environment.environ || Py_TYPE(key) != &PyUnicode_Type || is_read_by_library();
    return PyObject_CallFunctionObjArgs(is_nothing ? environment.real : environment.told, self, key, NULL);
}

static PyMethodDef environment_method = {"__getitem__", environment_item, METH_O, NULL};

// environment(class, real, told, environ, items, values, passing, installed) -> a method for that class; once.
static PyObject *module_environment(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject *class, *parts[7];
    if (!PyArg_ParseTuple(given, "O!OOOOOO!O!", &PyType_Type, &class, &parts[0], &parts[1], &parts[2], &parts[3], &parts[4], &PyFrozenSet_Type,
                          &parts[5], &PyDict_Type, &parts[6]))
        return NULL;
    PyObject **places[] = {&environment.real, &environment.told, &environment.environ, &environment.items, &environment.values,
                           &environment.passing, &environment.installed};
    for (int i = 0; i < 7; i++) {
        Py_INCREF(parts[i]);
        *places[i] = parts[i];
    }
    return PyDescr_NewMethod((PyTypeObject *)class, &environment_method);
}

// -- what the interpreter tells of itself (PEP 578) -------------------------------------------------------------------

// Not part of the stable ABI, but the same since 3.8. A hook in Python would be called for each ``id``, ``sys._getframe`` and dozens of
// others that are told of in a request, of which only "open" is wanted.
extern int PySys_AddAuditHook(int (*)(const char *, PyObject *, void *), void *) __attribute__((weak));

static PyObject *on_open, *name_open;

static int heard(const char *event, PyObject *given, void *Py_UNUSED(data)) {
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
static PyObject *module_listen(PyObject *Py_UNUSED(module), PyObject *function) {
    if (PySys_AddAuditHook == NULL || PyInterpreterState_Get == NULL || on_open != NULL) Py_RETURN_FALSE;
    name_open = PyUnicode_InternFromString("open");
    if (name_open == NULL || PySys_AddAuditHook(heard, NULL) < 0) return NULL;
    Py_INCREF(function);
    on_open = function;
    Py_RETURN_TRUE;
}

// -- the module -------------------------------------------------------------------------------------------------------

// crc32(bytes) -> int: for the tests.
static PyObject *module_crc32(PyObject *Py_UNUSED(module), PyObject *given) {
    char *p;
    Py_ssize_t n;
    if (PyBytes_AsStringAndSize(given, &p, &n) < 0) return NULL;
    return PyLong_FromUnsignedLong(~crc32_more(CRC32_BEGIN, (uint8_t *)p, (size_t)n));
}

// is_own() -> bool: this interpreter may use the module. Another one of the process is given a copy of it without ``PyInit__quick``.
static PyObject *module_is_own(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) { return PyBool_FromLong(is_own_interpreter()); }

static PyMethodDef module_methods[] = {
    {"clock", module_clock, METH_VARARGS, NULL},
    {"crc32", module_crc32, METH_O, NULL},
    {"environment", module_environment, METH_VARARGS, NULL},
    {"bear", module_bear, METH_NOARGS, NULL},
    {"here", module_here, METH_NOARGS, NULL},
    {"is_own", module_is_own, METH_NOARGS, NULL},
    {"lanes", module_lanes, METH_VARARGS, NULL},
    {"listen", module_listen, METH_O, NULL},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_quick", NULL, -1, module_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__quick(void) {
    // Before any object is made: from 3.12 on another interpreter refuses the module only when this has returned, and what it made then
    // lies in memory that ends with that interpreter.
    void *running = running_interpreter();
    if (checker_type != NULL || (PyInterpreterState_Main != NULL && running != PyInterpreterState_Main()))
        return PyErr_Format(PyExc_ImportError, "only for the main interpreter of a process");
    own_interpreter = running;
    crc32_prepare();
    make_powers_of_ten();
    name_number = PyUnicode_InternFromString("number");
    name_checker = PyUnicode_InternFromString("checker");
    name_description = PyUnicode_InternFromString("description");
    name_rowcount = PyUnicode_InternFromString("rowcount");
    name_lastrowid = PyUnicode_InternFromString("lastrowid");
    name_asyncio = PyUnicode_InternFromString("asyncio");
    name_name = PyUnicode_InternFromString("__name__");
    name_connection = PyUnicode_InternFromString("connection");
    name_texts = PyUnicode_InternFromString("_texts");
    name_database = PyUnicode_InternFromString("_relive_database");
    name_asked = PyUnicode_InternFromString("asked");
    name_sqlite = PyUnicode_InternFromString("sqlite");
    name_parameters = PyUnicode_InternFromString(",\"parameters\":");
    name_request = PyUnicode_InternFromString("request");
    name_who = PyUnicode_InternFromString("who");
    name_birth = PyUnicode_InternFromString("birth");
    name_lanes = PyUnicode_InternFromString("lanes");
    name_globals = PyUnicode_InternFromString("f_globals");
    name_file = PyUnicode_InternFromString("co_filename");
    name_quick = PyUnicode_InternFromString("quick");
    name_rows = PyUnicode_InternFromString("_relive_rows");
    nothing_given = PyTuple_New(0);
    PyObject *module = PyModule_Create(&definition), *draw = PyType_FromSpec(&draw_spec);
    checker_type = PyType_FromSpec(&checker_spec);
    quick_type = (PyTypeObject *)PyType_FromSpec(&quick_spec);
    if (module == NULL || quick_type == NULL || checker_type == NULL || draw == NULL || PyErr_Occurred()) return NULL;
    Py_INCREF(checker_type);
    Py_INCREF(quick_type);
    if (PyModule_AddObject(module, "Quick", (PyObject *)quick_type) < 0 || PyModule_AddObject(module, "Checker", checker_type) < 0 ||
        PyModule_AddObject(module, "Draw", draw) < 0)
        return NULL;
    return module;
}
