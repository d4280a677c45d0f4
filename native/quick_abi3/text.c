// See text.h.
#include "text.h"

char *more(Text *text, size_t size) {
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

char *digits_before(char *end, unsigned long long value) {
    static const char pairs[] =
        "000102030405060708091011121314151617181920212223242526272829303132333435363738394041424344454647484950515253545556575859"
        "60616263646566676869707172737475767778798081828384858687888990919293949596979899";
    for (; value >= 100; value /= 100) memcpy(end -= 2, pairs + 2 * (value % 100), 2);
    if (value < 10) *--end = (char)('0' + value);
    else memcpy(end -= 2, pairs + 2 * value, 2);
    return end;
}

void put_unsigned(Text *text, unsigned long long value) {
    char digits[20], *at = digits_before(digits + 20, value);
    put(text, at, (size_t)(digits + 20 - at));
}

void put_signed(Text *text, long long value) {
    if (value < 0) PUT(text, "-");
    put_unsigned(text, value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value);
}

static unsigned __int128 powers_of_ten[22];

void prepare_text(void) {
    powers_of_ten[0] = 1;
    for (int i = 1; i < 22; i++) powers_of_ten[i] = powers_of_ten[i - 1] * 10;
}

// value = mantissa / 2^down. Of d digits behind the point the nearest decimal is q / 10^d, with q = mantissa * 10^d / 2^down rounded;
// it reads back as the value where it is nearer than half the distance to the next double: 2 * |q * 2^down - mantissa * 10^d| < 10^d.
// What holds for d digits holds for d + 1, so the least d is found from above, where 10^d > 2^down.
int put_short_float(Text *text, double value) {
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

#define EACH_OF_EIGHT(byte) (0x0101010101010101u * (uint64_t)(byte))

// Whether eight bytes are printable ASCII without quotation marks and backslashes, which stand in JSON as they are. A byte that is less than
// another one, of those that are below 0x80, borrows in its difference; what another byte's borrow adds to that only makes it say no.
static int are_as_they_are(const uint8_t *p) {
    uint64_t eight;
    memcpy(&eight, p, 8);
    uint64_t quotation = eight ^ EACH_OF_EIGHT('"'), backslash = eight ^ EACH_OF_EIGHT('\\');
    uint64_t found = (eight - EACH_OF_EIGHT(' ')) | (quotation - EACH_OF_EIGHT(1)) | (backslash - EACH_OF_EIGHT(1)) | (eight + EACH_OF_EIGHT(1)) | eight;
    return !(found & EACH_OF_EIGHT(0x80));
}

// A text whose every byte stands as it is: by eights, of which the last may overlap.
static int are_all_as_they_are(const uint8_t *p, size_t n) {
    if (n < 8) {
        for (size_t i = 0; i < n; i++)
            if (p[i] < ' ' || p[i] > '~' || p[i] == '"' || p[i] == '\\') return 0;
        return 1;
    }
    for (size_t i = 0; i < n - 8; i += 8)
        if (!are_as_they_are(p + i)) return 0;
    return are_as_they_are(p + n - 8);
}

void put_quoted(Text *text, const uint8_t *p, size_t n) {
    if (are_all_as_they_are(p, n)) {
        char *to = more(text, n + 2);
        if (to == NULL) return;
        *to = '"';
        memcpy(to + 1, p, n);
        to[n + 1] = '"';
        text->length += n + 2;
        return;
    }
    PUT(text, "\"");
    size_t i = 0, from = 0;
    while (i < n) {
        uint8_t c = p[i];
        if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
            i += i + 8 <= n && are_as_they_are(p + i) ? 8 : 1;
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

void put_base64(Text *text, const uint8_t *p, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = (uint32_t)p[i] << 16 | (uint32_t)(i + 1 < n ? p[i + 1] : 0) << 8 | (i + 2 < n ? p[i + 2] : 0);
        char said[4] = {digits[bits >> 18], digits[bits >> 12 & 63], i + 1 < n ? digits[bits >> 6 & 63] : '=', i + 2 < n ? digits[bits & 63] : '='};
        put(text, said, 4);
    }
}

// How many bytes from ``i`` on, in steps of eight, are ASCII.
static size_t ascii_from(const uint8_t *p, size_t i, size_t n) {
    size_t begin = i;
    for (uint64_t eight; i + 8 <= n; i += 8) {
        memcpy(&eight, p + i, 8);
        if (eight & 0x8080808080808080u) break;
    }
    return i - begin;
}

int is_ascii(const uint8_t *p, size_t n) {
    for (size_t i = ascii_from(p, 0, n); i < n; i++)
        if (p[i] >= 0x80) return 0;
    return 1;
}

int is_utf8(const uint8_t *p, size_t n) {
    unsigned code;
    for (size_t i = ascii_from(p, 0, n); i < n;) {
        size_t size = p[i] < 0x80 ? 1 : character(p + i, n - i, &code);
        if (!size) return 0;
        i += size;
        i += ascii_from(p, i, n);
    }
    return 1;
}
