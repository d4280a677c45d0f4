/* What is recorded of copied packets: see tapped.h. */
#define _GNU_SOURCE
#include "tapped.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_HEAD = 12 };

/* Fields */

static uint8_t *put_end(uint8_t *at, uint32_t version, const uint8_t *address, uint32_t port)
{
    char text[INET6_ADDRSTRLEN];
    inet_ntop(version == 4 ? AF_INET : AF_INET6, address, text, sizeof text);
    *at++ = 0x92;
    return put_number(put_text(at, text, strlen(text)), port);
}

static uint8_t *put_bin(uint8_t *at, const uint8_t *data, size_t size)
{
    *at++ = 0xc5, *at++ = (uint8_t)(size >> 8), *at++ = (uint8_t)size;
    memcpy(at, data, size);
    return at + size;
}

static void record(struct tap *tap, uint64_t mono_ns, const char *kind, uint64_t number, const uint8_t *end, const uint8_t *data, size_t size)
{
    journal_append_at(&tap->relay->journal, mono_ns, mono_ns + (uint64_t)tap->apart_ns, kind, number, 0, tap->fields,
                      (size_t)(end - tap->fields), data, size);
}

void tapped_note(struct tap *tap, uint64_t mono_ns, uint64_t number, const char *text, uint64_t lost)
{
    uint8_t *at = tap->fields;
    *at++ = 0x83;
    at = PUT(PUT(at, "about"), "capture");
    at = put_text(PUT(at, "text"), text, strlen(text));
    at = put_number(PUT(at, "lost"), lost);
    record(tap, mono_ns, "note", number, at, NULL, 0);
}

void tapped_opened(struct tap *tap, struct dialogue *one, uint64_t mono_ns, const char *error)
{
    int has_said = one->side[UP].place || one->side[DOWN].place;
    uint8_t *at = tap->fields;
    *at++ = (uint8_t)(0x80 | (3 + (error ? 1 : 2 + 2 * has_said) + one->is_encrypted));
    at = put_end(PUT(at, "to"), one->first.version, one->first.peer, one->first.peer_port);
    at = put_end(PUT(at, "origin"), one->first.version, one->first.own, one->first.own_port);
    at = put_number(PUT(at, "connect_ns"), one->connect_ns);
    if (error)
        at = put_text(PUT(at, "error"), error, strlen(error));
    else
        at = put_number(PUT(put_number(PUT(at, "up_base"), one->side[UP].base), "down_base"), one->side[DOWN].base);
    if (!error && has_said)
        at = put_number(PUT(put_number(PUT(at, "up_at"), (uint64_t)one->side[UP].place), "down_at"), (uint64_t)one->side[DOWN].place);
    if (one->is_encrypted)
        at = PUT(PUT(at, "tls"), "closed");
    record(tap, mono_ns, "dialogue-opened", one->number, at, NULL, 0);
    one->told_in = tap->relay->journal.numbers->first_seq;
}

void tapped_ended(struct tap *tap, struct dialogue *one, int way, uint64_t mono_ns, const char *how)
{
    if (one->has_ended[way] || !one->is_open)
        return;
    one->has_ended[way] = 1;
    uint8_t *at = tap->fields;
    *at++ = 0x83;
    at = way == UP ? PUT(PUT(at, "way"), "up") : PUT(PUT(at, "way"), "down");
    at = put_text(PUT(at, "how"), how, strlen(how));
    at = put_number(PUT(at, "bytes"), (uint64_t)one->side[way].place);
    record(tap, mono_ns, "dialogue-ended", one->number, at, NULL, 0);
}

void tapped_said(struct tap *tap, struct dialogue *one, int way, uint64_t mono_ns, int64_t at, const uint8_t *data, size_t size)
{
    uint8_t *end = tap->fields;
    *end++ = 0x81;
    end = put_number(PUT(end, "at"), (uint64_t)at);
    record(tap, mono_ns, way == UP ? "dialogue-up" : "dialogue-down", one->number, end, data, size);
}

/* Questions to name servers */

static void record_lookup(struct tap *tap, size_t index, uint64_t mono_ns, const uint8_t *answer, size_t size)
{
    struct question *asked = tap->questions[index];
    uint8_t *at = tap->fields;
    *at++ = 0x83;
    at = put_end(PUT(at, "to"), tap->asked[index].version, tap->asked[index].peer, tap->asked[index].peer_port);
    at = put_bin(PUT(at, "question"), asked->data, asked->size);
    at = put_number(PUT(at, "ns"), mono_ns - asked->mono_ns);
    record(tap, asked->mono_ns, "name-lookup", 0, at, answer, size);
    free(asked);
    tap->question_count--;
    tap->questions[index] = tap->questions[tap->question_count], tap->asked[index] = tap->asked[tap->question_count];
}

void tapped_unanswered(struct tap *tap, uint64_t mono_ns, uint64_t within_ns)
{
    for (size_t i = tap->question_count; i-- > 0;)
        if (tap->questions[i]->mono_ns + within_ns <= mono_ns)
            record_lookup(tap, i, mono_ns, NULL, 0);
}

/* 1 and the index of a question of the same socket to the same server, with the same number; 0: there is none. */
static size_t question_of(const struct tap *tap, const struct tapped *now, const uint8_t *data)
{
    for (size_t i = 0; i < tap->question_count; i++) {
        const struct tapped *asked = &tap->asked[i];
        if (asked->who == now->who && !memcmp(tap->questions[i]->data, data, 2) && !memcmp(asked->peer, now->peer, sizeof now->peer))
            return i + 1;
    }
    return 0;
}

void tapped_question(struct tap *tap, const struct tapped *now, const uint8_t *data)
{
    enum { QUESTION_MOST = 1500 };
    if (now->size < NAME_HEAD || now->size > QUESTION_MOST)
        return;
    if (question_of(tap, now, data))
        return; /* asked again */
    if (tap->question_count == QUESTIONS_MOST)
        record_lookup(tap, 0, now->mono_ns, NULL, 0);
    struct question *made = must(malloc(sizeof *made + now->size));
    made->mono_ns = now->mono_ns, made->size = now->size;
    memcpy(made->data, data, now->size);
    tap->asked[tap->question_count] = *now;
    tap->questions[tap->question_count++] = made;
}

void tapped_answer(struct tap *tap, const struct tapped *now, const uint8_t *data)
{
    size_t found = now->size >= NAME_HEAD ? question_of(tap, now, data) : 0;
    if (found)
        record_lookup(tap, found - 1, now->mono_ns, data, now->size);
}
