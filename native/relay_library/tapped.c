/* What a service says to others and gets of them, put together from copies of its packets, and recorded as dialogues.
 *
 * `relive.kernel.calltap` has the copies made, in a ring of the kernel (BPF_MAP_TYPE_RINGBUF); `relive.proxies.egress.beside` calls this.
 * The dialogues are tapped_dialogues.c's, what is said on them tapped_segments.c's, the recording's events tapped_events.c's.
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
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

enum { AT_ONCE = 256 /* copies before the ring has room for as many again */ };

static const uint64_t ANSWERED_WITHIN_NS = 10000000000ull;
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
    if (journal_keep_back(&relay->journal) || map_ring(made, ring, notes)) {
        free(made);
        return NULL;
    }
    journal_lasts(&relay->journal, made->ring, 2 * size); /* it is given back behind `journal_flush` */
    made->notes->is_idle = 0; /* who was killed while it waited is not to be woken */
    made->buckets = must(calloc(TAP_BUCKETS, sizeof *made->buckets));
    return made;
}

static void take(struct tap *tap, const struct tapped *now, const uint8_t *data)
{
    struct dialogue *one;
    switch (now->kind) {
    case TAP_UP:
    case TAP_DOWN:
        tapped_observe(tap, now, data);
        break;
    case TAP_QUESTION:
        tapped_question(tap, now, data);
        break;
    case TAP_ANSWER:
        tapped_answer(tap, now, data);
        break;
    case TAP_OWN:
        if ((one = dialogue_find(tap, now->who)))
            dialogue_drop(tap, one); /* it does not stand yet: nothing of it is recorded */
        break;
    case TAP_CLOSED:
        tapped_closed(tap, now);
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

/* While much comes: `tap_take` again and again, after a pause each time, until one took no more than `least` or `rounds` are over. Returns
 * what the last one did. */
API uint64_t tap_follow(struct tap *tap, int64_t apart_ns, uint64_t pause_ns, unsigned rounds, uint64_t least)
{
    const struct timespec pause = {0, (long)pause_ns};
    uint64_t taken;
    do {
        nanosleep(&pause, NULL);
        taken = tap_take(tap, apart_ns);
    } while (taken > least && --rounds);
    return taken;
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
        is_over ? dialogue_end(tap, tap->first, UP, now, "lost") : dialogue_drop(tap, tap->first);
    tapped_unanswered(tap, now, 0);
    journal_flush(&tap->relay->journal);
    pthread_mutex_unlock(&tap->relay->journal.lock);
    for (struct known *next, *one = tap->known; one; one = next)
        next = one->next, free(one);
    journal_lasts(&tap->relay->journal, NULL, 0);
    munmap((void *)tap->consumed, tap->page);
    munmap((void *)tap->produced, tap->page + 2 * tap->size);
    munmap(tap->notes, tap->page);
    free(tap->buckets);
    free(tap);
}
