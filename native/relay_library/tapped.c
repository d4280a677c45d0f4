/* What a service says to others and gets of them, put together from copies of its packets, and recorded as dialogues.
 *
 * `relive.kernel.calltap` has the copies made, in a ring of the kernel (BPF_MAP_TYPE_RINGBUF); `relive.proxies.egress.beside` calls this.
 * A copy is in the ring before the service's socket gets the packet, or before it leaves; so an acknowledgement of bytes comes behind them,
 * and bytes that are acknowledged and have not come are lost. A dialogue of which bytes are lost ends there as such; what is said later on
 * its connection is another one, whose places begin behind the hole, and a note says so.
 *
 * What is taken is in the kernel's hands, as a recording, before it leaves the ring: of what is there when this process is killed
 * nothing is lost. The next one is told what the recording has of each dialogue (`tap_resume`), and goes on there.
 *
 * All functions want to be called by one thread. None calls back. */
#define _GNU_SOURCE
#include "tapped.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

enum { TAP_UP, TAP_DOWN, TAP_QUESTION, TAP_ANSWER, TAP_OWN, TAP_CLOSED };
enum { FLAG_FIN = 1, FLAG_SYN = 2, FLAG_RST = 4, FLAG_ACK = 16, IS_CLOSED = 256 /* by the service, before it was sent */ };
enum { AT_ONCE = 256, /* copies before the ring has room for as many again */ BUCKETS = 1024, DIALOGUES_MOST = 65536 };

static const uint64_t AHEAD_MOST = 16ull << 20, AHEAD_IN_ALL = 64ull << 20, ANSWERED_WITHIN_NS = 10000000000ull;
static const uint32_t BUSY = 1u << 31, DISCARDED = 1u << 30;

struct tap_counts {
    uint64_t dialogues, gaps, lost, taken;
};

/* What Python mirrors. */
API int tap_layout(int which)
{
    const size_t layout[] = {sizeof(struct tapped), sizeof(struct tap_counts), sizeof(struct resumed)};
    return which >= 0 && (size_t)which < sizeof layout / sizeof *layout ? (int)layout[which] : -1;
}

static int map_ring(struct tap *tap, int ring, int notes)
{
    uint8_t *at = mmap(NULL, tap->page, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    if (at == MAP_FAILED)
        return -1;
    tap->consumed = (volatile uint64_t *)at;
    at = mmap(NULL, tap->page + 2 * tap->size, PROT_READ, MAP_SHARED, ring, (off_t)tap->page);
    if (at == MAP_FAILED)
        return -1;
    tap->produced = (volatile uint64_t *)at;
    tap->ring = at + tap->page;
    tap->notes = mmap(NULL, tap->page, PROT_READ | PROT_WRITE, MAP_SHARED, notes, 0);
    return tap->notes == MAP_FAILED ? -1 : 0;
}

/* NULL, with errno: the maps cannot be had. `relay` must outlive it. */
API struct tap *tap_new(struct relay *relay, int ring, uint64_t size, int notes)
{
    struct tap *made = must(calloc(1, sizeof *made));
    made->relay = relay, made->size = size, made->page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (map_ring(made, ring, notes)) {
        free(made);
        return NULL;
    }
    made->notes->is_idle = 0; /* who was killed while it waited is not to be woken */
    made->buckets = must(calloc(BUCKETS, sizeof *made->buckets));
    return made;
}

/* The table */

static struct dialogue *find(struct tap *tap, uint64_t who)
{
    struct dialogue *one = tap->buckets[who % BUCKETS];
    while (one && one->who != who)
        one = one->in_bucket;
    return one;
}

static void end_both(struct tap *tap, struct dialogue *one, int first, uint64_t mono_ns, const char *how);

static struct dialogue *begin(struct tap *tap, const struct tapped *of)
{
    if (tap->count == DIALOGUES_MOST) /* that it was closed has been lost */
        end_both(tap, tap->first, UP, of->mono_ns, "lost");
    struct dialogue *made = must(calloc(1, sizeof *made)), **bucket = &tap->buckets[of->who % BUCKETS];
    made->lost_before = tap->lost_before;
    made->who = of->who, made->first = *of, made->in_bucket = *bucket, *bucket = made;
    made->previous = tap->last;
    *(tap->last ? &tap->last->next : &tap->first) = made;
    tap->last = made;
    tap->count++;
    return made;
}

static void drop(struct tap *tap, struct dialogue *one)
{
    struct dialogue **at = &tap->buckets[one->who % BUCKETS];
    while (*at != one)
        at = &(*at)->in_bucket;
    *at = one->in_bucket;
    *(one->previous ? &one->previous->next : &tap->first) = one->next;
    *(one->next ? &one->next->previous : &tap->last) = one->previous;
    tap->count--;
    tap->ahead -= one->side[UP].ahead + one->side[DOWN].ahead;
    stream_free(&one->side[UP]), stream_free(&one->side[DOWN]);
    free(one->early);
    free(one);
}

/* Nothing came of it. */
static void fails(struct tap *tap, struct dialogue *one, uint64_t mono_ns, const char *error)
{
    one->number = ++tap->relay->journal.numbers->connection;
    one->connect_ns = mono_ns - one->first.mono_ns;
    tapped_opened(tap, one, one->first.mono_ns, error);
}

static void end_both(struct tap *tap, struct dialogue *one, int first, uint64_t mono_ns, const char *how)
{
    tapped_ended(tap, one, first, mono_ns, how);
    tapped_ended(tap, one, !first, mono_ns, how);
    drop(tap, one);
}

/* Before anything is taken. The sequence numbers of both its ends tell it from all others. */
API void tap_resume(struct tap *tap, const struct resumed *has)
{
    struct known *made = must(malloc(sizeof *made));
    made->has = *has, made->next = tap->known;
    tap->known = made;
}

/* Go on with a dialogue of an earlier process. NULL: it had none. */
static struct dialogue *resume(struct tap *tap, const struct tapped *now)
{
    struct known **at = &tap->known, *found;
    while (*at && memcmp((*at)->has.base, now->base, sizeof now->base))
        at = &(*at)->next;
    if (!(found = *at))
        return NULL;
    struct dialogue *made = begin(tap, now);
    made->lost_before = UINT64_MAX; /* of what was missing then nothing is known */
    made->number = found->has.number, made->connect_ns = found->has.connect_ns;
    made->is_open = 1, made->is_encrypted = found->has.is_encrypted;
    for (int way = 0; way < 2; way++) {
        stream_begin(&made->side[way], now->base[way]);
        made->side[way].place = (int64_t)found->has.place[way];
        made->has_ended[way] = found->has.has_ended[way];
    }
    *at = found->next;
    free(found);
    return made;
}

static struct dialogue *find_or_resume(struct tap *tap, const struct tapped *now)
{
    struct dialogue *one = find(tap, now->who);
    return one || !tap->known ? one : resume(tap, now);
}

/* Its beginning is not known, or what was said before is lost; then `before` says what stood where. */
static struct dialogue *begin_in_middle(struct tap *tap, const struct tapped *now, const struct dialogue *before)
{
    struct dialogue *made = begin(tap, now);
    int way = now->kind == TAP_DOWN;
    uint32_t next[2];
    next[way] = now->sequence, next[!way] = now->flags & FLAG_ACK ? now->acknowledged : now->base[!way];
    made->number = ++tap->relay->journal.numbers->connection, made->is_open = 1;
    made->is_encrypted = before && before->is_encrypted;
    for (int each = 0; each < 2; each++) {
        struct stream *stream = &made->side[each];
        stream_begin(stream, now->base[each]);
        stream->place = (uint32_t)(next[each] - now->base[each]);
        if (before && before->has_ended[each])
            stream->place = before->side[each].place; /* and FIN */
        else if (before && stream_place_of(&before->side[each], next[each]) > stream->place)
            stream->place = stream_place_of(&before->side[each], next[each]); /* there have been more than 4 GiB */
    }
    tapped_opened(tap, made, now->mono_ns, NULL);
    if (before || made->side[UP].place || made->side[DOWN].place) {
        tapped_note(tap, now->mono_ns, made->number, "what was said on a connection before is missing", 0);
        tap->gaps++;
    }
    return made;
}

/* What is said */

struct taking {
    struct tap *tap;
    struct dialogue *one;
    int way;
    uint64_t mono_ns;
};

/* TLS begins at once, or after PostgreSQL's question for it. */
static void look_for_tls(struct taking *now, const uint8_t *data, size_t size, int64_t at)
{
    static const uint8_t postgres_asks[] = {0, 0, 0, 8, 4, 210, 22, 47};
    struct dialogue *one = now->one;
    if (now->way != UP || one->is_encrypted || !(at == 0 || (at == 8 && one->asks_for_tls)))
        return;
    if (at == 0 && size == sizeof postgres_asks && !memcmp(data, postgres_asks, size))
        one->asks_for_tls = 1;
    if (size < 6 || data[0] != 0x16 || data[1] != 3 || data[5] != 1)
        return;
    one->is_encrypted = 1;
    one->told_in = 0;
}

static void give(void *who, const uint8_t *data, size_t size)
{
    struct taking *now = who;
    struct dialogue *one = now->one;
    struct tap *tap = now->tap;
    int64_t at = one->side[now->way].place - (int64_t)size; /* what is given out is counted before */
    look_for_tls(now, data, size, at);
    if (one->told_in != tap->relay->journal.numbers->first_seq) {
        one->side[now->way].place = at;
        tapped_opened(tap, one, now->mono_ns, NULL);
        one->side[now->way].place = at + (int64_t)size;
    }
    tapped_said(tap, one, now->way, now->mono_ns, at, data, size);
}

/* It stands. What was said with SYN (TCP Fast Open) is said again unless it was taken, which is no difference. */
static void stands(struct tap *tap, struct dialogue *one, const struct tapped *now)
{
    one->number = ++tap->relay->journal.numbers->connection;
    one->connect_ns = now->mono_ns - one->first.mono_ns;
    one->is_open = 1;
    stream_begin(&one->side[UP], now->base[UP]), stream_begin(&one->side[DOWN], now->base[DOWN]);
    tapped_opened(tap, one, one->first.mono_ns, NULL);
    if (one->early)
        stream_add(&one->side[UP], now->base[UP], one->early->data, one->early->size, give, &(struct taking){tap, one, UP, now->mono_ns});
}

/* SYN is answered. What an earlier process took and recorded, and was killed before it had it out of the ring, is there again. */
static void answered(struct tap *tap, struct dialogue *one, const struct tapped *now)
{
    if (tap->known) {
        struct tapped first = one->first;
        drop(tap, one);
        one = resume(tap, now);
        if (!one)
            one = begin(tap, &first);
    }
    if (!one->is_open)
        stands(tap, one, now);
}

static struct dialogue *lose(struct tap *tap, struct dialogue *one, const struct tapped *now)
{
    struct dialogue before = *one; /* of its streams only the places are looked at */
    end_both(tap, one, UP, now->mono_ns, "lost");
    one = begin_in_middle(tap, now, &before);
    one->is_closed = before.is_closed;
    if (before.has_ended[UP])
        tapped_ended(tap, one, UP, now->mono_ns, "closed");
    return one;
}

static void begins(struct tap *tap, const struct tapped *now, const uint8_t *data)
{
    struct dialogue *one = find(tap, now->who);
    if (one && one->first.base[UP] == now->base[UP])
        return; /* it is said again */
    if (one && !one->is_open)
        fails(tap, one, now->mono_ns, "ETIMEDOUT"), drop(tap, one);
    else if (one)
        end_both(tap, one, UP, now->mono_ns, "lost");
    one = begin(tap, now);
    if (now->size)
        one->early = piece_new(0, data, now->size);
}

/* Bytes of the other way are acknowledged which have not come; FIN takes a number too, also one that is not copied any more. */
static int lacks(const struct dialogue *one, const struct tapped *now)
{
    int other = now->kind != TAP_DOWN ? DOWN : UP;
    const struct stream *stream = &one->side[other];
    if (!(now->flags & FLAG_ACK) || now->flags & FLAG_RST || (other == DOWN && one->is_closed && one->has_ended[DOWN]))
        return 0;
    int has_fin = stream_has_ended(stream) || one->has_ended[other] || now->flags & IS_CLOSED;
    return stream_place_of(stream, now->acknowledged) > stream->place + !!has_fin;
}

/* No copy of its packets can be missing. */
static int is_whole(const struct tap *tap, const struct dialogue *one)
{
    return __atomic_load_n(&tap->notes->lost, __ATOMIC_ACQUIRE) == one->lost_before;
}

/* More waits for those before them than can. */
static int is_too_far(const struct tap *tap, const struct stream *stream, const struct tapped *now)
{
    uint64_t more = now->size + PIECE_COST;
    return stream_place_of(stream, now->sequence) > stream->place &&
           (stream->ahead + more > AHEAD_MOST || tap->ahead + more > AHEAD_IN_ALL);
}

static void add(struct tap *tap, struct dialogue *one, int way, const struct tapped *now, const uint8_t *data)
{
    struct stream *stream = &one->side[way];
    tap->ahead -= stream->ahead;
    stream_add(stream, now->sequence, data, now->size, give, &(struct taking){tap, one, way, now->mono_ns});
    tap->ahead += stream->ahead;
    if (stream->has_end && stream->place > stream->end)
        stream->has_end = 0; /* the socket did not take that FIN: it took more */
}

static void reset(struct tap *tap, struct dialogue *one, int way, const struct tapped *now)
{
    const struct stream *stream = &one->side[way];
    int64_t lacking = stream_place_of(stream, now->sequence) - stream->place;
    end_both(tap, one, way, now->mono_ns, way == DOWN && lacking > 1 && !is_whole(tap, one) ? "lost" : "reset");
}

/* A segment of one that stands. */
static void observe_said(struct tap *tap, struct dialogue *one, int way, const struct tapped *now, const uint8_t *data)
{
    if (lacks(one, now)) {
        if (way == DOWN && is_whole(tap, one))
            return; /* nothing is missing, so the service has not said that: its socket drops the segment as well */
        one = lose(tap, one, now);
    }
    if (way == UP && now->flags & IS_CLOSED) {
        tapped_ended(tap, one, DOWN, now->mono_ns, "closed");
        one->is_closed = 1;
    }
    if (now->size && !one->has_ended[way]) {
        if (is_too_far(tap, &one->side[way], now))
            one = lose(tap, one, now);
        add(tap, one, way, now, data);
    }
    struct stream *stream = &one->side[way];
    if (now->flags & FLAG_RST) {
        reset(tap, one, way, now);
        return;
    }
    if (now->flags & FLAG_FIN && stream_place_of(stream, now->sequence + now->whole) >= stream->place)
        stream_end_at(stream, now->sequence + now->whole);
    if (stream_has_ended(stream))
        tapped_ended(tap, one, way, now->mono_ns, "closed");
    if (one->is_closed && one->has_ended[UP])
        drop(tap, one);
}

static void observe(struct tap *tap, const struct tapped *now, const uint8_t *data)
{
    int way = now->kind == TAP_DOWN;
    if (way == UP && (now->flags & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN) {
        begins(tap, now, data);
        return;
    }
    struct dialogue *one = find_or_resume(tap, now);
    if (!one && way == DOWN && (now->flags & (FLAG_SYN | FLAG_ACK)) == (FLAG_SYN | FLAG_ACK))
        one = begin(tap, now); /* SYN was lost, or taken by a process that was killed then */
    if (one && !one->is_open) {
        if (way == DOWN && now->flags & FLAG_SYN) {
            answered(tap, one, now);
            return;
        }
        if (now->flags & FLAG_RST)
            fails(tap, one, now->mono_ns, way == DOWN ? "ECONNREFUSED" : "ETIMEDOUT");
        drop(tap, one); /* or the answer to SYN is lost */
        one = NULL;
    }
    if (now->flags & FLAG_SYN || (!one && now->flags & (FLAG_RST | IS_CLOSED)))
        return;
    observe_said(tap, one ? one : begin_in_middle(tap, now, NULL), way, now, data);
}

/* The service has closed it: it gets nothing more. What it says last is still to come, and acknowledges what it got. A dialogue is kept
 * until then, also one that has ended both ways, since what was said may be said again. */
static void closed(struct tap *tap, const struct tapped *now)
{
    struct dialogue *one = find_or_resume(tap, now);
    if (!one)
        return;
    one->is_closed = 1;
    if (!one->is_open)
        fails(tap, one, now->mono_ns, "ETIMEDOUT");
    if (one->is_open && !one->has_ended[UP])
        return;
    const struct stream *got = &one->side[DOWN];
    int is_missing = got->waiting || (got->has_end && !stream_has_ended(got));
    tapped_ended(tap, one, DOWN, now->mono_ns, is_missing ? "lost" : "closed");
    drop(tap, one);
}

/* The ring */

static void take(struct tap *tap, const struct tapped *now, const uint8_t *data)
{
    struct dialogue *one;
    switch (now->kind) {
    case TAP_UP:
    case TAP_DOWN:
        observe(tap, now, data);
        break;
    case TAP_QUESTION:
        tapped_question(tap, now, data);
        break;
    case TAP_ANSWER:
        tapped_answer(tap, now, data);
        break;
    case TAP_OWN:
        if ((one = find(tap, now->who)))
            drop(tap, one); /* it does not stand yet: nothing of it is recorded */
        break;
    case TAP_CLOSED:
        closed(tap, now);
    }
}

static void look_for_losses(struct tap *tap)
{
    uint64_t lost = __atomic_load_n(&tap->notes->lost, __ATOMIC_RELAXED);
    if (lost == tap->notes->said)
        return;
    tapped_note(tap, clock_ns(CLOCK_MONOTONIC), 0, "packets of what is asked of others are missing", lost - tap->notes->said);
    tap->gaps++, tap->notes->said = lost;
}

/* The copies up to a place, at most AT_ONCE of them. */
static uint64_t take_some(struct tap *tap, uint64_t at, uint64_t until)
{
    for (int left = AT_ONCE; at < until && left;) {
        const uint8_t *place = tap->ring + (at & (tap->size - 1));
        uint32_t length = __atomic_load_n((const uint32_t *)place, __ATOMIC_ACQUIRE);
        if (length & BUSY) { /* another processor is at it, which takes no longer than a copy of some KiB, or its thread waits for this one */
            sched_yield();
            continue;
        }
        if (!(length & DISCARDED))
            take(tap, (const void *)(place + 8), place + 8 + sizeof(struct tapped));
        at += ((length & ~(BUSY | DISCARDED)) + 8 + 7) / 8 * 8;
        tap->taken++, left--;
    }
    return at;
}

/* Record what is in the ring now: every packet that a socket got, or sent, before the call. `apart_ns`: CLOCK_REALTIME less
 * CLOCK_MONOTONIC. Returns how many bytes that were in the ring. */
API uint64_t tap_take(struct tap *tap, int64_t apart_ns)
{
    uint64_t lost = __atomic_load_n(&tap->notes->lost, __ATOMIC_ACQUIRE);
    uint64_t began = *tap->consumed, at = began, until = __atomic_load_n(tap->produced, __ATOMIC_ACQUIRE);
    tap->apart_ns = apart_ns;
    pthread_mutex_lock(&tap->relay->journal.lock);
    do {
        at = take_some(tap, at, until);
        look_for_losses(tap);
        if (at == until)
            tapped_unanswered(tap, clock_ns(CLOCK_MONOTONIC), ANSWERED_WITHIN_NS);
        journal_flush(&tap->relay->journal);
        __atomic_store_n(tap->consumed, at, __ATOMIC_RELEASE);
    } while (at < until);
    tap->lost_before = lost; /* what is taken next was copied later */
    pthread_mutex_unlock(&tap->relay->journal.lock);
    return until - began;
}

/* Whether the next copy is to wake who waits for the ring's descriptor. Between this and that `tap_take` has to be called once more. */
API void tap_wake(struct tap *tap, int is_wanted)
{
    __atomic_store_n(&tap->notes->is_idle, (uint64_t)is_wanted, __ATOMIC_SEQ_CST);
}

API void tap_count(struct tap *tap, struct tap_counts *counts)
{
    *counts = (struct tap_counts){tap->count, tap->gaps, tap->notes->lost, tap->taken};
}

/* Nothing is recorded any more. What is said from now on waits in the ring, as long as there is room, unless it `is_over`. */
API void tap_end(struct tap *tap, int is_over)
{
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    pthread_mutex_lock(&tap->relay->journal.lock);
    while (tap->first)
        is_over ? end_both(tap, tap->first, UP, now, "lost") : drop(tap, tap->first);
    tapped_unanswered(tap, now, 0);
    journal_flush(&tap->relay->journal);
    pthread_mutex_unlock(&tap->relay->journal.lock);
    for (struct known *next, *one = tap->known; one; one = next)
        next = one->next, free(one);
    munmap((void *)tap->consumed, tap->page);
    munmap((void *)tap->produced, tap->page + 2 * tap->size);
    munmap(tap->notes, tap->page);
    free(tap->buckets);
    free(tap);
}
