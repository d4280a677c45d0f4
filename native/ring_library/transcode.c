/* See transcode.h. JSON as in RFC 8259, and as Python's `json` reads it, without blanks between tokens. */
#define _GNU_SOURCE
#include "transcode.h"
#include "../msgpack.h"

#include <locale.h>
#include <stdlib.h>

enum {
    DEEPEST = 64, /* containers within each other; Python judges deeper ones */
    DIGITS_MOST = 64, /* of a number with a fraction or an exponent */
};

static locale_t plain; /* whose decimal point is one, whatever the process has set */

__attribute__((constructor)) static void prepare(void)
{
    plain = newlocale(LC_ALL_MASK, "C", 0);
}

struct reader {
    const uint8_t *at, *end;
    uint8_t *out;
};

static bool takes(struct reader *reader, uint8_t wanted)
{
    if (reader->at == reader->end || *reader->at != wanted)
        return false;
    reader->at++;
    return true;
}

static bool takes_word(struct reader *reader, const char *word, uint8_t packed)
{
    size_t size = strlen(word);
    if ((size_t)(reader->end - reader->at) < size || memcmp(reader->at, word, size))
        return false;
    reader->at += size;
    *reader->out++ = packed;
    return true;
}

static inline bool is_digit(const struct reader *reader)
{
    return reader->at < reader->end && (uint8_t)(*reader->at - '0') < 10;
}

/* An integer that is not negative and has at most 64 bits, without zeros before it. */
static bool read_count(struct reader *reader, uint64_t *value)
{
    const uint8_t *begin = reader->at;
    for (*value = 0; is_digit(reader); reader->at++)
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, (uint64_t)(*reader->at - '0'), value))
            return false;
    return reader->at > begin && (*begin != '0' || reader->at == begin + 1);
}

/* From `begin` on: fraction and exponent, as RFC 8259 has them. */
static bool put_fraction(struct reader *reader, const uint8_t *begin)
{
    char digits[DIGITS_MOST + 1];
    if (takes(reader, '.')) {
        if (!is_digit(reader))
            return false;
        while (is_digit(reader))
            reader->at++;
    }
    if (takes(reader, 'e') || takes(reader, 'E')) {
        if (!takes(reader, '+'))
            takes(reader, '-');
        if (!is_digit(reader))
            return false;
        while (is_digit(reader))
            reader->at++;
    }
    size_t size = (size_t)(reader->at - begin);
    if (size > DIGITS_MOST)
        return false;
    memcpy(digits, begin, size);
    digits[size] = 0;
    reader->out = put_double(reader->out, strtod_l(digits, NULL, plain));
    return true;
}

static bool put_any_number(struct reader *reader)
{
    const uint8_t *begin = reader->at;
    bool is_negative = takes(reader, '-');
    uint64_t value;
    if (!read_count(reader, &value))
        return false;
    if (reader->at < reader->end && (*reader->at == '.' || *reader->at == 'e' || *reader->at == 'E'))
        return put_fraction(reader, begin);
    if (!is_negative || !value)
        reader->out = put_number(reader->out, value);
    else if (value <= (uint64_t)INT64_MAX + 1)
        reader->out = put_negative(reader->out, (int64_t)(0 - value));
    else
        return false;
    return true;
}

/* Four hexadecimal digits; -1: they are none. */
static int32_t read_hex(struct reader *reader)
{
    int32_t value = 0;
    if (reader->end - reader->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        uint8_t digit = *reader->at++;
        uint8_t low = digit | 0x20;
        if ((uint8_t)(digit - '0') < 10)
            value = value << 4 | (digit - '0');
        else if (low >= 'a' && low <= 'f')
            value = value << 4 | (low - 'a' + 10);
        else
            return -1;
    }
    return value;
}

static void put_character(struct reader *reader, uint32_t code)
{
    if (code < 0x80) {
        *reader->out++ = (uint8_t)code;
        return;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint8_t heads[] = { 0, 0xc0, 0xe0, 0xf0 };
    *reader->out++ = (uint8_t)(heads[more] | code >> 6 * more);
    while (more--)
        *reader->out++ = (uint8_t)(0x80 | (code >> 6 * more & 0x3f));
}

/* What stands behind a backslash. A half of a surrogate pair by itself is for Python. */
static bool put_escaped(struct reader *reader)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (reader->at == reader->end)
        return false;
    uint8_t name = *reader->at++;
    const char *found = name ? strchr(names, name) : NULL;
    if (found) {
        *reader->out++ = (uint8_t)values[found - names];
        return true;
    }
    int32_t code = name == 'u' ? read_hex(reader) : -1;
    if (code >= 0xd800 && code < 0xdc00) {
        int32_t low = takes(reader, '\\') && takes(reader, 'u') ? read_hex(reader) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return false;
    }
    if (code < 0)
        return false;
    put_character(reader, (uint32_t)code);
    return true;
}

/* One character that is not ASCII, well-formed as table 3-7 of the Unicode standard has it. */
static bool put_utf8(struct reader *reader)
{
    const uint8_t *at = reader->at;
    uint8_t first = *at, least = 0x80, most = 0xbf;
    int more = first < 0xc2 || first > 0xf4 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    if (!more || reader->end - at <= more)
        return false;
    if (first == 0xe0)
        least = 0xa0;
    else if (first == 0xed)
        most = 0x9f;
    else if (first == 0xf0)
        least = 0x90;
    else if (first == 0xf4)
        most = 0x8f;
    if (at[1] < least || at[1] > most)
        return false;
    for (int i = 2; i <= more; i++)
        if ((at[i] & 0xc0) != 0x80)
            return false;
    memcpy(reader->out, at, (size_t)more + 1);
    reader->out += more + 1, reader->at += more + 1;
    return true;
}

/* How many bytes from `at` stand for themselves in a string. */
static size_t plain_run(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *begin = at;
    while (at < end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\')
        at++;
    return (size_t)(at - begin);
}

/* A string, whose packed bytes begin at `*begin` and end at `reader->out`. Its head is as long as that of the text within the quotes; where
 * escapes make it shorter, the bytes move. */
static bool put_string(struct reader *reader, const uint8_t **begin)
{
    if (!takes(reader, '"'))
        return false;
    size_t run = plain_run(reader->at, reader->end);
    if (reader->at + run == reader->end)
        return false;
    if (reader->at[run] == '"') { /* nearly all are so */
        uint8_t *bytes = put_text_head(reader->out, run);
        memcpy(bytes, reader->at, run);
        *begin = bytes, reader->out = bytes + run, reader->at += run + 1;
        return true;
    }
    uint8_t *head = reader->out, *bytes = head + 5;
    reader->out = bytes;
    for (;;) {
        run = plain_run(reader->at, reader->end);
        memcpy(reader->out, reader->at, run);
        reader->out += run, reader->at += run;
        if (reader->at == reader->end)
            return false;
        if (takes(reader, '"'))
            break;
        if (*reader->at >= 0x80 ? !put_utf8(reader) : !(takes(reader, '\\') && put_escaped(reader)))
            return false;
    }
    size_t size = (size_t)(reader->out - bytes);
    uint8_t *end = put_text_head(head, size);
    memmove(end, bytes, size);
    *begin = end, reader->out = end + size;
    return true;
}

static bool put_value(struct reader *reader, int depth);

/* Set the count of a container whose items were written behind one byte left for it. */
static void put_count_before(struct reader *reader, uint8_t *head, uint8_t few, uint8_t many, size_t count)
{
    uint8_t packed[PUT_COUNT_MOST];
    size_t size = (size_t)(put_count(packed, few, many, count) - packed);
    if (size > 1)
        memmove(head + size, head + 1, (size_t)(reader->out - head - 1));
    memcpy(head, packed, size);
    reader->out += size - 1;
}

/* The items of an array behind its bracket, and how many they are. */
static bool put_items(struct reader *reader, int depth, size_t *count)
{
    *count = 0;
    if (takes(reader, ']'))
        return true;
    for (;;) {
        if (!put_value(reader, depth))
            return false;
        ++*count;
        if (takes(reader, ']'))
            return true;
        if (!takes(reader, ','))
            return false;
    }
}

static bool put_array(struct reader *reader, int depth)
{
    uint8_t *head = reader->out++;
    size_t count;
    if (!put_items(reader, depth, &count))
        return false;
    put_count_before(reader, head, 0x90, 0xdc, count);
    return true;
}

/* Returns false for the keys that are added: which of two would count is for Python to say. */
static bool notice(struct noticed *noticed, const uint8_t *key, size_t size)
{
#define IS(text) (size == sizeof text - 1 && !memcmp(key, text, sizeof text - 1))
    noticed->has_file |= IS("file");
    noticed->has_asked |= IS("asked");
    return !(IS("own_seq") || IS("thread") || IS("lane") || IS("pid"));
}

static bool put_pair(struct reader *reader, int depth, struct noticed *noticed)
{
    const uint8_t *key;
    if (!put_string(reader, &key) || (noticed && !notice(noticed, key, (size_t)(reader->out - key))))
        return false;
    return takes(reader, ':') && put_value(reader, depth);
}

/* The pairs of an object behind its brace, and how many they are. */
static bool put_pairs(struct reader *reader, int depth, struct noticed *noticed, size_t *count)
{
    *count = 0;
    if (takes(reader, '}'))
        return true;
    for (;;) {
        if (!put_pair(reader, depth, noticed))
            return false;
        ++*count;
        if (takes(reader, '}'))
            return true;
        if (!takes(reader, ','))
            return false;
    }
}

static bool put_object(struct reader *reader, int depth)
{
    uint8_t *head = reader->out++;
    size_t count;
    if (!put_pairs(reader, depth, NULL, &count))
        return false;
    put_count_before(reader, head, 0x80, 0xde, count);
    return true;
}

static bool put_value(struct reader *reader, int depth)
{
    const uint8_t *ignored;
    if (reader->at == reader->end || depth == DEEPEST)
        return false;
    switch (*reader->at) {
    case '"':
        return put_string(reader, &ignored);
    case '{':
        reader->at++;
        return put_object(reader, depth + 1);
    case '[':
        reader->at++;
        return put_array(reader, depth + 1);
    case 't':
        return takes_word(reader, "true", 0xc3);
    case 'f':
        return takes_word(reader, "false", 0xc2);
    case 'n':
        return takes_word(reader, "null", 0xc0);
    default:
        return put_any_number(reader);
    }
}

/* A number of an event: below 2^63, and a comma behind it. */
static bool read_item(struct reader *reader, uint64_t *value)
{
    return read_count(reader, value) && *value <= INT64_MAX && takes(reader, ',');
}

static bool read_kind(struct reader *reader, struct meta *meta)
{
    if (!takes(reader, '"'))
        return false;
    meta->kind = reader->at, meta->kind_size = plain_run(reader->at, reader->end);
    reader->at += meta->kind_size;
    return takes(reader, '"') && takes(reader, ',');
}

static bool put_fields(struct reader *reader, uint64_t pid, const struct meta *meta, struct noticed *noticed)
{
    uint8_t *head = reader->out++;
    size_t count;
    if (!takes(reader, '{') || !put_pairs(reader, 0, noticed, &count))
        return false;
    reader->out = put_number(put_text(reader->out, "own_seq", 7), meta->seq);
    reader->out = put_number(put_text(reader->out, "thread", 6), meta->thread);
    reader->out = put_number(put_text(reader->out, "lane", 4), meta->lane);
    reader->out = put_number(put_text(reader->out, "pid", 3), pid);
    put_count_before(reader, head, 0x80, 0xde, count + 4);
    return true;
}

uint8_t *transcode(const uint8_t *text, size_t size, uint64_t pid, uint8_t *out, struct meta *meta, struct noticed *noticed)
{
    struct reader reader = { text, text + size, out };
    *noticed = (struct noticed){ false, false };
    if (!takes(&reader, '[') || !read_item(&reader, &meta->seq) || !read_item(&reader, &meta->mono_ns) ||
        !read_item(&reader, &meta->wall_ns) || !read_kind(&reader, meta) || !read_item(&reader, &meta->thread) ||
        !read_item(&reader, &meta->lane) || !read_item(&reader, &meta->request))
        return NULL;
    reader.out = put_number(put_number(out, meta->mono_ns), meta->wall_ns);
    reader.out = put_text(reader.out, (const char *)meta->kind, meta->kind_size);
    reader.out = put_number(put_number(reader.out, 0), meta->request);
    if (!put_fields(&reader, pid, meta, noticed) || !takes(&reader, ']') || reader.at != reader.end)
        return NULL;
    return reader.out;
}
