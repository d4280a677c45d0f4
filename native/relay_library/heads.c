/* Heads and chunk framing: see heads.h. Every index is checked against the size; no line is ever looked for beyond it. */
#include "heads.h"

#include <string.h>
#include <strings.h>

static int is_token(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

struct span {
    const uint8_t *text;
    size_t size;
};

/* The line at *at, which goes behind it: it ends in CR LF, neither of which is elsewhere in it, nor a NUL. Its size is without the end. */
static enum verdict next_line(const uint8_t *data, size_t size, size_t *at, struct span *line)
{
    line->text = data + *at;
    const uint8_t *end = memchr(line->text, '\n', size - *at);
    if (!end)
        return UNFINISHED;
    line->size = (size_t)(end - line->text);
    if (!line->size || line->text[line->size - 1] != '\r')
        return ODD;
    *at += line->size + 1;
    line->size--;
    return memchr(line->text, '\r', line->size) || memchr(line->text, 0, line->size) ? ODD : WHOLE;
}

struct header {
    const uint8_t *name, *value;
    size_t name_size, value_size;
};

static int is_header(const uint8_t *line, size_t size, struct header *header)
{
    size_t at = 0;
    while (at < size && is_token(line[at]))
        at++;
    if (!at || at == size || line[at] != ':')
        return 0;
    header->name = line, header->name_size = at++;
    while (at < size && (line[at] == ' ' || line[at] == '\t'))
        at++;
    while (size > at && (line[size - 1] == ' ' || line[size - 1] == '\t'))
        size--;
    header->value = line + at, header->value_size = size - at;
    return 1;
}

/* The header at *at, which goes behind it. WHOLE and no name: the blank line that ends the head. */
static enum verdict next_header(const uint8_t *data, size_t size, size_t *at, struct header *header)
{
    struct span line;
    enum verdict verdict = next_line(data, size, at, &line);
    header->name_size = 0;
    if (verdict != WHOLE || !line.size)
        return verdict;
    return is_header(line.text, line.size, header) ? WHOLE : ODD;
}

static int is_named(const struct header *header, const char *name)
{
    return header->name_size == strlen(name) && !strncasecmp((const char *)header->name, name, header->name_size);
}

static int read_length(const struct header *header, uint64_t *length)
{
    if (!header->value_size || header->value_size > 15)
        return 0;
    *length = 0;
    for (size_t i = 0; i < header->value_size; i++) {
        if (header->value[i] < '0' || header->value[i] > '9')
            return 0;
        *length = *length * 10 + (header->value[i] - '0');
    }
    return 1;
}

static int is_request_line(const uint8_t *line, size_t size, struct request_head *head)
{
    static const char version[] = " HTTP/1.";
    size_t at = 0;
    while (at < size && is_token(line[at]))
        at++;
    if (!at || at == size || line[at] != ' ')
        return 0;
    if (at == 7 && !memcmp(line, "CONNECT", 7))
        return 0;
    head->is_head = at == 4 && !memcmp(line, "HEAD", 4);
    size_t target = ++at;
    while (at < size && line[at] > 0x20 && line[at] != 0x7f)
        at++;
    size_t left = size - at;
    return at > target && left == sizeof version && !memcmp(line + at, version, sizeof version - 1) &&
           (line[size - 1] == '0' || line[size - 1] == '1');
}

enum verdict read_request_head(const uint8_t *data, size_t size, struct request_head *head)
{
    struct span line;
    struct header header;
    int has_length = 0;
    size_t at = 0;
    head->length = 0;
    if (size && !is_token(data[0]))
        return ODD;
    enum verdict verdict = next_line(data, size, &at, &line);
    if (verdict != WHOLE)
        return verdict;
    if (!is_request_line(line.text, line.size, head))
        return ODD;
    for (;;) {
        verdict = next_header(data, size, &at, &header);
        if (verdict != WHOLE)
            return verdict;
        if (!header.name_size)
            break;
        if (is_named(&header, "content-length")) {
            if (has_length++ || !read_length(&header, &head->length))
                return ODD;
        } else if (is_named(&header, "transfer-encoding") || is_named(&header, "upgrade") || is_named(&header, "expect")) {
            return ODD;
        }
    }
    head->size = at;
    return WHOLE;
}

static int is_status_line(const uint8_t *line, size_t size, struct answer_head *head)
{
    if (size < 12 || memcmp(line, "HTTP/1.", 7) || (line[7] != '0' && line[7] != '1') || line[8] != ' ')
        return 0;
    head->status = 0;
    for (int i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return 0;
        head->status = head->status * 10 + (line[i] - '0');
    }
    return head->status >= 200 && (size == 12 || line[12] == ' ');
}

enum verdict read_answer_head(const uint8_t *data, size_t size, struct answer_head *head)
{
    struct span line;
    struct header header;
    int has_length = 0, has_coding = 0;
    uint64_t length = 0;
    size_t at = 0;
    enum verdict verdict = next_line(data, size, &at, &line);
    if (verdict != WHOLE)
        return verdict;
    if (!is_status_line(line.text, line.size, head))
        return ODD;
    for (;;) {
        verdict = next_header(data, size, &at, &header);
        if (verdict != WHOLE)
            return verdict;
        if (!header.name_size)
            break;
        if (is_named(&header, "content-length")) {
            if (has_length++ || !read_length(&header, &length))
                return ODD;
        } else if (is_named(&header, "transfer-encoding")) {
            if (has_coding++ || header.value_size != 7 || strncasecmp((const char *)header.value, "chunked", 7))
                return ODD;
        }
    }
    head->size = at;
    head->length = has_coding ? IN_CHUNKS : has_length ? (int64_t)length : UNTIL_CLOSE;
    return WHOLE;
}

int begins_request(const uint8_t *data, size_t size)
{
    static const char *const known[] = {"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "TRACE "};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (size >= strlen(known[i]) && !memcmp(data, known[i], strlen(known[i])))
            return 1;
    return 0;
}

enum { SIZE, BLANK, EXTENSION, SIZE_END, DATA, DATA_CR, DATA_LF, TRAILER, NAME, VALUE, TRAILER_LF, LAST_LF };
#define LINE_MOST (16 * 1024)
#define TRAILERS_MOST (64 * 1024)

void chunks_begin(struct chunks *chunks)
{
    memset(chunks, 0, sizeof *chunks);
}

static int digit_of(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of the framing. 0: go on, 1: the body is over, -1: against the rules. */
static int framing_byte(struct chunks *chunks, uint8_t c)
{
    int digit;
    switch (chunks->state) {
    case SIZE:
        digit = digit_of(c);
        if (digit >= 0 && chunks->digits < 15) {
            chunks->left = chunks->left * 16 + (uint64_t)digit;
            chunks->digits++;
            return 0;
        }
        if (!chunks->digits || digit >= 0)
            return -1;
        chunks->state = BLANK; /* fall through */
    case BLANK:
        if (c == ' ' || c == '\t')
            return 0;
        chunks->state = EXTENSION;
        if (c == ';')
            return 0;
        if (c != '\r')
            return -1; /* fall through */
    case EXTENSION:
        if (c == '\r')
            chunks->state = SIZE_END;
        return c == 0 || c == '\n' ? -1 : 0;
    case SIZE_END:
        chunks->state = chunks->left ? DATA : TRAILER;
        return c == '\n' ? 0 : -1;
    case DATA_CR:
        chunks->state = DATA_LF;
        return c == '\r' ? 0 : -1;
    case DATA_LF:
        chunks->state = SIZE, chunks->digits = 0, chunks->left = 0;
        return c == '\n' ? 0 : -1;
    case TRAILER:
        chunks->state = c == '\r' ? LAST_LF : NAME;
        return c == '\r' || is_token(c) ? 0 : -1;
    case NAME:
        if (c == ':')
            chunks->state = VALUE;
        return c == ':' || is_token(c) ? 0 : -1;
    case VALUE:
        if (c == '\r')
            chunks->state = TRAILER_LF;
        return c == 0 || c == '\n' ? -1 : 0;
    case TRAILER_LF:
        chunks->state = TRAILER;
        return c == '\n' ? 0 : -1;
    default: /* LAST_LF */
        return c == '\n' ? 1 : -1;
    }
}

static const char *why_broken(int state)
{
    return state < DATA ? "a malformed chunk size" : state < TRAILER ? "a chunk is longer than its size" : "a malformed or too long trailer";
}

int64_t chunks_take(struct chunks *chunks, const uint8_t *data, size_t size, int *is_over, const char **why)
{
    size_t at = 0;
    *is_over = 0;
    while (at < size) {
        if (chunks->state == DATA && !chunks->broken) {
            size_t take = chunks->left < size - at ? (size_t)chunks->left : size - at;
            at += take;
            chunks->left -= take;
            if (!chunks->left)
                chunks->state = DATA_CR, chunks->line = 0;
            continue;
        }
        uint8_t c = data[at++];
        int before = chunks->state, what = chunks->broken ? 0 : framing_byte(chunks, c);
        if (++chunks->line > LINE_MOST) {
            *why = "a line of the chunk framing is too long";
            return -1;
        }
        if (what < 0)
            chunks->broken = why_broken(before);
        if (c != '\n')
            continue;
        if (before >= TRAILER && what == 0 && (chunks->trailers += chunks->line) > TRAILERS_MOST)
            chunks->broken = why_broken(before);
        if ((*why = chunks->broken))
            return -1;
        chunks->line = 0;
        if (what == 1) {
            *is_over = 1;
            return (int64_t)at;
        }
    }
    return (int64_t)at;
}
