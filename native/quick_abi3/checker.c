// See checker.h.
#include "checker.h"

enum { FORM_CHAINS = 1024, HINT_CHAINS = 64, NAMES = 64, LONGEST_NAME = 31, PAIRS = 128 /* 7 bits */, LONGEST_PAIR = 252, STATEMENTS = 64 };
enum { CARD = 1, URL = 2, SCHEME = 4, FORM = 8, FOLDED = 16, HINT = 32, SHORT = 64 };

typedef struct {
    const char *at;
    size_t length;
} Piece;

struct Checker {
    PyObject_HEAD
    int sure;           // 0: no text is ever said to be clean
    int is_outdated;    // something was learned since it was made
    PyObject *held;     // tuple of bytes: what the pieces below point to
    Piece *pieces;      // hints, then forms
    Py_ssize_t hints, forms;
    uint8_t flags[256];
    uint8_t wanted[8192];  // a bit for each two bytes with which anything begins that is looked for
    uint8_t thirds[1024];        // the same for three bytes, by a hash, letters of either size; of forms and hints that are as long
    int32_t first[FORM_CHAINS];  // the first form of each chain, from 1; forms are many, and each is near a few places of a text only
    int32_t first_hint[HINT_CHAINS];
    int32_t *next;               // the form or hint behind each in its chain; 0: none. Hints, then forms
    struct {
        uint8_t length;
        char at[LONGEST_NAME];
    } names[NAMES];  // of headers and columns, which come again and again: those in which no hint was found
    struct {
        uint16_t name, value;  // lengths; 0, 0: none
        char json[LONGEST_PAIR];
    } pairs[PAIRS];  // headers, each in its name's place
    struct {
        PyObject *statement, *database, *json;  // NULL: none
    } statements[STATEMENTS];  // each in the place of its address
};

PyObject *checker_type;

static unsigned chain_of(unsigned pair) { return pair * 40503u >> 4 & (FORM_CHAINS - 1); }

static int same_but_case(const uint8_t *p, const char *low, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((p[i] >= 'A' && p[i] <= 'Z' ? p[i] + 32 : p[i]) != (uint8_t)low[i]) return 0;
    return 1;
}

// By its first two bytes; where both are letters, of either size.
static unsigned chain_of_hint(const uint8_t *p) { return ((p[0] | 32u) * 31u + (p[1] | 32u)) & (HINT_CHAINS - 1); }

static int begins_with_hint(const Checker *self, const uint8_t *p, size_t left) {
    for (int32_t k = self->first_hint[chain_of_hint(p)]; k; k = self->next[k - 1])
        if (self->pieces[k - 1].length <= left && same_but_case(p, self->pieces[k - 1].at, self->pieces[k - 1].length)) return 1;
    return 0;
}

int has_hint(const Checker *self, const uint8_t *p, size_t n) {
    if (!self->sure) return 1;  // one may be of one byte
    for (size_t i = 0; i + 1 < n; i++)
        if (self->flags[p[i]] & HINT && begins_with_hint(self, p + i, n - i)) return 1;
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

// By the first four bytes of a name, the last four and its length: so ``content-type`` and ``content-length`` have places of their own.
static size_t place_of_pair(const char *name, size_t n) {
    uint32_t first = 0, last;
    if (n < 4) {
        memcpy(&first, name, n);
        last = first;
    } else {
        memcpy(&first, name, 4);
        memcpy(&last, name + n - 4, 4);
    }
    return ((first * 0x9E3779B1u) ^ ((last + (uint32_t)n) * 0x85EBCA77u)) >> 25;
}

// What was let pass once is let pass by the same checker again: secrets that are learned later make another checker.
const char *json_of_pair(const Checker *self, const char *name, size_t n, const char *value, size_t m) {
    if (n == 0 || LENGTH_OF_PAIR(n, m) > LONGEST_PAIR) return NULL;
    const char *json = self->pairs[place_of_pair(name, n)].json;
    if (self->pairs[place_of_pair(name, n)].name != n || self->pairs[place_of_pair(name, n)].value != m) return NULL;
    return !memcmp(json + 2, name, n) && !memcmp(json + 5 + n, value, m) ? json : NULL;  // behind [" and ","
}

void remember_pair(Checker *self, const char *name, size_t n, size_t m, const char *json, size_t length) {
    if (n == 0 || length != LENGTH_OF_PAIR(n, m) || length > LONGEST_PAIR) return;
    size_t place = place_of_pair(name, n);
    self->pairs[place].name = (uint16_t)n;
    self->pairs[place].value = (uint16_t)m;
    memcpy(self->pairs[place].json, json, length);
}

static size_t place_of_statement(PyObject *statement) { return (uintptr_t)statement / 16 % STATEMENTS; }

PyObject *json_of_statement(const Checker *self, PyObject *statement, PyObject *database) {
    size_t place = place_of_statement(statement);
    return self->statements[place].statement == statement && self->statements[place].database == database ? self->statements[place].json : NULL;
}

void remember_statement(Checker *self, PyObject *statement, PyObject *database, PyObject *json) {
    size_t place = place_of_statement(statement);
    PyObject *before[] = {self->statements[place].statement, self->statements[place].database, self->statements[place].json};
    self->statements[place].statement = kept(statement);
    self->statements[place].database = kept(database);
    self->statements[place].json = kept(json);
    for (int i = 0; i < 3; i++) Py_XDECREF(before[i]);
}

int is_outdated(const Checker *self) { return self->is_outdated; }

// By three bytes, of which letters may be of either size; a number of 13 bits.
static unsigned chain_of_three(const uint8_t *p) { return ((p[0] | 32u) * 3571u + (p[1] | 32u) * 419u + (p[2] | 32u)) & 8191; }

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


// What may begin at ``p[i]``, where the pair of bytes there is one of ``wanted``. ``hinted``: set where a hint does, which is nothing by
// itself.
static int may_begin(const Checker *self, const uint8_t *p, size_t i, size_t n, int *hinted) {
    uint8_t flags = self->flags[p[i]];
    size_t left = n - i;
    if (!(flags & ~(FORM | HINT))) {  // only what is at least three bytes long
        unsigned three = left > 2 ? chain_of_three(p + i) : 0;
        if (left < 3 || !(self->thirds[three >> 3] >> (three & 7) & 1)) return 0;
    }
    if (flags & URL && i && left > 1 && p[i + 1] == '/' && p[i - 1] == ':') return 1;
    if (flags & CARD && left >= 13 && may_be_card(p, i, n)) return 1;
    if (flags & SCHEME && ((left >= 5 && same_but_case(p + i, "basic", 5)) || (left >= 6 && same_but_case(p + i, "bearer", 6)))) return 1;
    // Two characters that become ASCII letters when they are made small: the sign of Kelvin, and I with a dot.
    if (flags & FOLDED && ((p[i] == 0xE2 && left > 2 && p[i + 1] == 0x84 && p[i + 2] == 0xAA) || (p[i] == 0xC4 && left > 1 && p[i + 1] == 0xB0)))
        return 1;
    if (flags & FORM && left > 1) {
        unsigned pair = p[i] | (unsigned)p[i + 1] << 8;
        for (int32_t k = self->first[chain_of(pair)]; k; k = self->next[k - 1])
            if (self->pieces[k - 1].length <= left && !memcmp(self->pieces[k - 1].at, p + i, self->pieces[k - 1].length)) return 1;
    }
    if (flags & HINT && !*hinted && left > 1) *hinted = begins_with_hint(self, p + i, left);
    return 0;
}

static int is_wanted(const Checker *self, unsigned pair) { return self->wanted[pair >> 3] >> (pair & 7) & 1; }

// One look at each pair of bytes, four at a time: nearly none is the beginning of anything.
int may_hold_secret(const Checker *self, const uint8_t *p, size_t n) {
    int hinted = 0;
    size_t i = 0;
    if (!self->sure) return 1;
    for (; i + 8 <= n; i += 4) {
        uint64_t eight;
        memcpy(&eight, p + i, 8);
        int some = is_wanted(self, eight & 0xFFFF) | is_wanted(self, eight >> 8 & 0xFFFF) | is_wanted(self, eight >> 16 & 0xFFFF) |
                   is_wanted(self, eight >> 24 & 0xFFFF);
        for (size_t k = i; some && k < i + 4; k++)
            if (is_wanted(self, p[k] | (unsigned)p[k + 1] << 8) && may_begin(self, p, k, n, &hinted)) return 1;
    }
    // Nothing that is looked for is one byte long.
    for (; i + 1 < n; i++)
        if (is_wanted(self, p[i] | (unsigned)p[i + 1] << 8) && may_begin(self, p, i, n, &hinted)) return 1;
    return hinted && (memchr(p, ':', n) != NULL || memchr(p, '=', n) != NULL);
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

static void want(Checker *self, uint8_t flag, uint8_t first, uint8_t second) {
    unsigned pair = first | (unsigned)second << 8;
    self->flags[first] |= flag;
    self->wanted[pair >> 3] |= (uint8_t)(1 << (pair & 7));
}

static void want_all(Checker *self, uint8_t flag, const char *firsts, const char *seconds) {
    for (const char *first = firsts; *first; first++)
        for (const char *second = seconds; *second; second++) want(self, flag, (uint8_t)*first, (uint8_t)*second);
}

static char large(uint8_t c) { return (char)(c >= 'a' && c <= 'z' ? c - 32 : c); }

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
    self->next = PyMem_Calloc((size_t)(self->hints + self->forms) + 1, sizeof(int32_t));
    if (self->held == NULL || self->pieces == NULL || self->next == NULL || add_pieces(self, hints, 0, 0, self->hints) < 0 ||
        add_pieces(self, forms, self->hints, self->hints, self->forms) < 0) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    want_all(self, CARD, "23456", "0123456789 -");
    want_all(self, URL, "/", "/");
    want_all(self, SCHEME, "bB", "aAeE");
    want_all(self, FOLDED, "\xE2", "\x84");
    want_all(self, FOLDED, "\xC4", "\xB0");
    for (Py_ssize_t k = 0; self->sure && k < self->hints + self->forms; k++) {
        const uint8_t *p = (const uint8_t *)self->pieces[k].at;
        if (k < self->hints) {
            if (!is_ascii(p, self->pieces[k].length)) self->sure = 0;
            char first[] = {(char)p[0], large(p[0]), 0}, second[] = {(char)p[1], large(p[1]), 0};
            want_all(self, HINT, first, second);
        } else {
            want(self, FORM, p[0], p[1]);
        }
        if (self->pieces[k].length > 2) self->thirds[chain_of_three(p) >> 3] |= (uint8_t)(1 << (chain_of_three(p) & 7));
        else want(self, SHORT, p[0], p[1]), want(self, SHORT, (uint8_t)large(p[0]), p[1]);
        int32_t *chain = k < self->hints ? &self->first_hint[chain_of_hint(p)] : &self->first[chain_of(p[0] | (unsigned)p[1] << 8)];
        self->next[k] = *chain;
        *chain = (int32_t)k + 1;
    }
    return (PyObject *)self;
}

static void checker_gone(PyObject *object) {
    Checker *self = (Checker *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->held);
    for (int i = 0; i < STATEMENTS; i++) {
        Py_XDECREF(self->statements[i].statement);
        Py_XDECREF(self->statements[i].database);
        Py_XDECREF(self->statements[i].json);
    }
    PyMem_Free(self->pieces);
    PyMem_Free(self->next);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

// clean(text) -> bool: no secret is in it, a str or bytes. False: it has to be looked for; so of bytes that are no UTF-8.
static PyObject *checker_clean(PyObject *self, PyObject *given) {
    int clean = 0, is_text = Py_TYPE(given) == &PyUnicode_Type;
    char *p;
    Py_ssize_t n;
    PyObject *bytes = is_text ? PyUnicode_AsUTF8String(given) : given;
    if (bytes != NULL && !PyBytes_AsStringAndSize(bytes, &p, &n))
        clean = (is_text || is_utf8((uint8_t *)p, (size_t)n)) && !may_hold_secret((Checker *)self, (uint8_t *)p, (size_t)n);
    PyErr_Clear();
    if (is_text) Py_XDECREF(bytes);
    return PyBool_FromLong(clean);
}

// outdate(): something was learned that it does not know.
static PyObject *checker_outdate(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    ((Checker *)self)->is_outdated = 1;
    Py_RETURN_NONE;
}

static PyMethodDef checker_methods[] = {
    {"clean", checker_clean, METH_O, NULL}, {"outdate", checker_outdate, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot checker_slots[] = {{Py_tp_new, checker_new}, {Py_tp_dealloc, checker_gone}, {Py_tp_methods, checker_methods}, {0, NULL}};
static PyType_Spec checker_spec = {"relive_recorder._quick.Checker", sizeof(Checker), 0, Py_TPFLAGS_DEFAULT, checker_slots};

PyObject *make_checker_type(void) { return checker_type = PyType_FromSpec(&checker_spec); }
