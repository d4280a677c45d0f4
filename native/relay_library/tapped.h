/* What is known of copied packets, and what is recorded of them: see tapped.c. All want the journal's lock. */
#ifndef RELAY_TAPPED_H
#define RELAY_TAPPED_H

#include "connection.h"
#include "streams.h"

#define QUESTIONS_MOST 4096
#define TAP_BUCKETS 1024

enum { TAP_UP, TAP_DOWN, TAP_QUESTION, TAP_ANSWER, TAP_OWN, TAP_CLOSED }; /* what a copy is */
enum { FLAG_FIN = 1, FLAG_SYN = 2, FLAG_RST = 4, FLAG_ACK = 16 };

/* A copy; the same in `relive.kernel.tapprograms`. `size` bytes follow, of the `whole` that the packet has from `sequence` on. */
struct tapped {
    uint64_t mono_ns, who;
    uint32_t size, kind, sequence, acknowledged, flags;
    uint32_t base[2]; /* sequence numbers of the first bytes */
    uint32_t version, own_port, peer_port;
    uint8_t own[16], peer[16];
    uint32_t whole, padding;
};

struct notes {
    uint64_t lost; /* copies for which there was no room, since the ring was made */
    uint64_t is_idle; /* who reads it is to be woken by the next one */
    uint64_t said; /* of `lost`: the recording says so */
};

struct dialogue {
    struct dialogue *in_bucket, *next, *previous;
    uint64_t who, number, told_in, connect_ns;
    uint64_t lost_before; /* copies that were lost before the first of these */
    struct tapped first;
    struct stream side[2];
    struct piece *early; /* said with SYN */
    int is_open, is_encrypted, asks_for_tls, is_closed, has_ended[2];
};

/* What an earlier process has recorded of a dialogue; mirrored by `relive.proxies.egress.tapped`. */
struct resumed {
    uint64_t number, connect_ns, place[2];
    uint32_t base[2];
    int32_t has_ended[2], is_encrypted, padding;
};

struct known {
    struct known *next;
    struct resumed has;
};

struct question {
    uint64_t mono_ns, size;
    uint8_t data[];
};

struct tap {
    struct relay *relay;
    struct notes *notes;
    volatile uint64_t *consumed, *produced;
    const uint8_t *ring;
    uint64_t size, page;
    int64_t apart_ns;
    struct dialogue **buckets, *first, *last;
    struct known *known;
    struct question *questions[QUESTIONS_MOST];
    struct tapped asked[QUESTIONS_MOST];
    size_t question_count;
    uint64_t count, gaps, taken;
    uint64_t lost_before, ahead; /* as of a dialogue; what waits in all streams */
    uint8_t fields[2048];
};

/* tapped_dialogues.c. NULL: there is none. */
struct dialogue *dialogue_find(struct tap *tap, uint64_t who);
struct dialogue *dialogue_resume(struct tap *tap, const struct tapped *now); /* of an earlier process */
struct dialogue *dialogue_find_or_resume(struct tap *tap, const struct tapped *now);
struct dialogue *dialogue_begin(struct tap *tap, const struct tapped *of); /* never NULL, as the next */
struct dialogue *dialogue_begin_in_middle(struct tap *tap, const struct tapped *now, const struct dialogue *before);
void dialogue_fails(struct tap *tap, struct dialogue *one, uint64_t mono_ns, const char *error); /* nothing came of it; it is to be dropped */
void dialogue_end(struct tap *tap, struct dialogue *one, int first, uint64_t mono_ns, const char *how); /* both ways; it is dropped */
void dialogue_drop(struct tap *tap, struct dialogue *one);

/* tapped_segments.c */
void tapped_observe(struct tap *tap, const struct tapped *now, const uint8_t *data);
void tapped_closed(struct tap *tap, const struct tapped *now);

/* tapped_events.c */
void tapped_note(struct tap *tap, uint64_t mono_ns, uint64_t number, const char *text, uint64_t lost);
void tapped_opened(struct tap *tap, struct dialogue *one, uint64_t mono_ns, const char *error); /* error: NULL: it stands */
void tapped_ended(struct tap *tap, struct dialogue *one, int way, uint64_t mono_ns, const char *how);
void tapped_said(struct tap *tap, struct dialogue *one, int way, uint64_t mono_ns, int64_t at, const uint8_t *data, size_t size);
/* Questions to name servers: each is recorded when it is answered, or will not be. */
void tapped_question(struct tap *tap, const struct tapped *now, const uint8_t *data);
void tapped_answer(struct tap *tap, const struct tapped *now, const uint8_t *data);
void tapped_unanswered(struct tap *tap, uint64_t mono_ns, uint64_t within_ns); /* that were asked so long ago */

#endif
