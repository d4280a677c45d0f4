// A text that grows: JSON, in ASCII. Once something in it could not be written (``failed``), nothing more is.
#pragma once
#include "python.h"

typedef struct {
    char *at;
    size_t length, room;
    int failed;  // what was to be written is not plain, or there is no memory
    char own[1496];
} Text;

static inline void text_begin(Text *text) {
    text->at = text->own;
    text->length = 0;
    text->room = sizeof text->own;
    text->failed = 0;
}

static inline void text_end(Text *text) {
    if (text->at != text->own) PyMem_Free(text->at);
}

// Have room for ``size`` bytes more; NULL where the text has failed.
char *more(Text *text, size_t size);

static inline void put(Text *text, const char *from, size_t size) {
    char *to = !text->failed && text->room - text->length >= size ? text->at + text->length : more(text, size);
    if (to == NULL) return;
    memcpy(to, from, size);
    text->length += size;
}
#define PUT(text, literal) put(text, literal, sizeof(literal) - 1)

// Writes a number's digits so that they end before ``end``; returns where they begin. At most 20.
char *digits_before(char *end, unsigned long long value);

void put_unsigned(Text *text, unsigned long long value);
void put_signed(Text *text, long long value);

// The shortest decimal that reads back as ``value``, and of these the nearest, as Python's ``repr`` has it; a twentieth of its work, where
// 128 bits are enough. Returns 0, with nothing written, for what is left to Python: very small and large numbers, exponents, ties.
int put_short_float(Text *text, double value);

// A string as Python's json writes it: everything beyond printable ASCII escaped.
void put_quoted(Text *text, const uint8_t *p, size_t n);

void put_base64(Text *text, const uint8_t *p, size_t n);

int is_ascii(const uint8_t *p, size_t n);
int is_utf8(const uint8_t *p, size_t n);

// Once, before anything else.
void prepare_text(void);
