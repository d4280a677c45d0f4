// See checker.h.
#include "checker.h"

enum { FORM_CHAINS = 1024, NAMES = 64, LONGEST_NAME = 31 };
enum { CARD = 1, FIELD = 2, SCHEME = 4, FORM = 8, FOLDED = 16, HINT = 32 };

typedef struct {
    const char *at;
    size_t length;
} Piece;

struct Checker {
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
};

PyObject *checker_type;

static unsigned chain_of(unsigned pair) { return pair * 40503u >> 4 & (FORM_CHAINS - 1); }

static int same_but_case(const uint8_t *p, const char *low, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((p[i] >= 'A' && p[i] <= 'Z' ? p[i] + 32 : p[i]) != (uint8_t)low[i]) return 0;
    return 1;
}

int has_hint(const Checker *self, const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!(self->flags[p[i]] & HINT)) continue;
        for (Py_ssize_t k = 0; k < self->hints; k++)
            if (self->pieces[k].length <= n - i && same_but_case(p + i, self->pieces[k].at, self->pieces[k].length)) return 1;
    }
    return 0;
}


int is_harmless_name(Checker *self, const uint8_t *p, size_t n) {
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


int may_hold_secret(const Checker *self, const uint8_t *p, size_t n) {
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

PyObject *make_checker_type(void) { return checker_type = PyType_FromSpec(&checker_spec); }
